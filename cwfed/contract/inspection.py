"""Finds what the suite needs to know of a model: its output layer, its blocks, its buffers.

Any ``nn.Module`` works that maps ``[B, C, H, W]`` to logits ``[B, K]`` through an output layer
with a ``weight`` of shape ``[K, F]``. The layer is named, not guessed: by the model's attribute
``head_name`` or by the run's ``head`` option.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cwfed.contract.spec import ModelSpec

ModelFactory = Callable[..., nn.Module]
"""A class or function that returns a model; see `build_model` for what it is given."""

DATA_ARGUMENTS = ("input_shape", "in_channels", "image_size", "num_classes")
"""Arguments that the data decides; a factory is given those that its signature names."""

_OF_IMAGES = {"in_channels", "image_size"}


def describe_model(model: nn.Module, num_classes: int, head: str | None = None) -> ModelSpec:
    """Find a model's output layer by contract and list what it holds.

    Args:
        model: The model.
        num_classes: K, the rows that the output layer must have.
        head: Dotted name of the output layer; None takes the model's ``head_name``.

    Raises:
        ValueError: No head is named, it does not exist, or its weight is not ``[K, F]``.
    """
    name = head or getattr(model, "head_name", None)
    if not isinstance(name, str):
        raise ValueError(
            f"head: expected the dotted name of the output layer of {type(model).__name__} (or an "
            f"attribute head_name on it), got {name!r}; its modules are: {_module_names(model)}"
        )
    try:
        layer = model.get_submodule(name)
    except AttributeError:
        raise ValueError(
            f"head: {type(model).__name__} has no module {name!r}; "
            f"its modules are: {_module_names(model)}"
        ) from None
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or weight.shape[0] != num_classes:
        found = tuple(weight.shape) if isinstance(weight, Tensor) else None
        raise ValueError(
            f"head: expected {name!r} to have a weight of shape ({num_classes}, features), one row "
            f"a class, got {found}"
        )
    parameters = dict(model.named_parameters())
    buffers = dict(model.named_buffers())
    trainable = tuple(n for n, p in parameters.items() if p.requires_grad)
    if not trainable:
        raise ValueError(f"model: {type(model).__name__} has no parameter that can be trained")
    layer_bias = getattr(layer, "bias", None)
    bias = None
    if isinstance(layer_bias, Tensor):
        bias = _registered_name(layer_bias, f"{name}.bias", parameters)
    return ModelSpec(
        head=name,
        head_weight=_registered_name(weight, f"{name}.weight", parameters),
        head_bias=bias,
        blocks=_blocks(model),
        parameters=trainable,
        float_buffers=tuple(n for n, b in buffers.items() if b.is_floating_point()),
        counters=tuple(n for n, b in buffers.items() if not b.is_floating_point()),
    )


def build_model(factory: ModelFactory, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Call a factory with those of `DATA_ARGUMENTS` that its signature names.

    Args:
        factory: A class, function or ``functools.partial`` of one. Arguments already bound by a
            partial are kept.
        input_shape: Shape of a sample, such as (C, H, W) of an image.
        num_classes: Number of classes, K.

    Raises:
        ValueError: The factory refuses its arguments, or asks for an image or a square image and
            gets none.
    """
    offered: dict[str, Any] = {"input_shape": input_shape, "num_classes": num_classes}
    is_image = len(input_shape) == 3
    if is_image:
        offered |= {"in_channels": input_shape[0], "image_size": input_shape[1]}
    bound = factory.keywords if isinstance(factory, partial) else {}
    wanted = set(inspect.signature(factory).parameters) - set(bound)
    name = getattr(factory, "__name__", None) or getattr(
        getattr(factory, "func", factory), "__name__", "model"
    )
    if not is_image and wanted & _OF_IMAGES:
        raise ValueError(f"model: {name} expects images, got samples of shape {input_shape}")
    if "image_size" in wanted and input_shape[1] != input_shape[2]:
        raise ValueError(
            f"model: {name} expects square images, got {input_shape[1]} x {input_shape[2]}"
        )
    with _blaming_the_model(f"{name} could not be built"):
        model = factory(**{key: value for key, value in offered.items() if key in wanted})
    if not isinstance(model, nn.Module):
        raise ValueError(f"model: expected {name} to return an nn.Module, got {type(model)}")
    return model


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode for a block, then every module back into its own mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def check_output(
    model: nn.Module,
    input_shape: tuple[int, ...],
    num_classes: int,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Check with two blank samples, of zeros, that the model returns logits ``[2, K]``.

    Lazy layers get their shapes here.

    Raises:
        ValueError: The model fails on the images, or returns something else.
    """
    with evaluating(model), torch.no_grad():
        _logits(model, torch.zeros(2, *input_shape, dtype=dtype), num_classes)


def check_training(
    model: nn.Module,
    input_shape: tuple[int, ...],
    num_classes: int,
    batch_sizes: Sequence[int],
    dtype: torch.dtype = torch.float32,
) -> None:
    """Check on a copy that batches of the sizes that will come can be trained on.

    Raises:
        ValueError: The model fails on such a batch (BatchNorm on a single sample does), returns
            something else than logits, or no gradient reaches its parameters.
    """
    for size in batch_sizes:
        copy = deepcopy(model).train()
        logits = _logits(copy, torch.zeros(size, *input_shape, dtype=dtype), num_classes)
        with _blaming_the_model(f"{type(model).__name__} cannot be trained"):
            logits.sum().backward()
        if all(p.grad is None for p in copy.parameters()):
            raise ValueError(f"model: no gradient reaches the parameters of {type(model).__name__}")


def _logits(model: nn.Module, images: Tensor, num_classes: int) -> Tensor:
    shape = tuple(images.shape)
    with _blaming_the_model(f"{type(model).__name__} fails on a batch of shape {shape}"):
        logits = model(images)
    if not isinstance(logits, Tensor) or logits.shape != (len(images), num_classes):
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"model: expected {type(model).__name__} to return logits of shape "
            f"({len(images)}, {num_classes}), got {found}"
        )
    return logits


@contextmanager
def _blaming_the_model(what: str) -> Iterator[None]:
    """Say that a model of a user's own is at fault, whatever it raises."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"model: {what}: {type(error).__name__}: {error}") from error


def _registered_name(tensor: Tensor, name: str, parameters: Mapping[str, Tensor]) -> str:
    """Return the name under which the model lists a parameter that may have several."""
    for known, parameter in parameters.items():
        if parameter is tensor:
            return known
    raise ValueError(
        f"head: expected {name!r} to be a parameter of the model, got a tensor made from others "
        f"(weight and spectral normalisation are not supported on the output layer)"
    )


def _module_names(model: nn.Module) -> str:
    return ", ".join(name for name, _ in model.named_modules() if name)


def _blocks(model: nn.Module) -> tuple[tuple[str, ...], ...]:
    own = [(name,) for name, _ in model.named_parameters(recurse=False)]
    children = []
    for child_name, child in model.named_children():
        if any(True for _ in child.parameters()):
            tensors = [*child.named_parameters(), *child.named_buffers()]
            children.append(tuple(f"{child_name}.{name}" for name, _ in tensors))
    return (*own, *children)
