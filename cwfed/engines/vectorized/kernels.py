"""Computes the gradients of stacked clients.

Legend: w clients side by side, B samples of a batch, C and O channels, K entries of a filter.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from cwfed.contract.spec import ModelSpec
from cwfed.engines.base import Kernel
from cwfed.engines.vectorized.stack import Rows, Tensors
from cwfed.objectives.base import ClientContext, Objective, Step

STREAMS = 8


class LocalLoss:
    """The local objective as a function of one client's tensors; `torch.vmap` stacks it.

    Args:
        model: The network, whose own tensors are not used.
        contract: Its names.
        objective: The local objective.
        memory_format: Layout in which the model gets its images.
    """

    def __init__(
        self,
        model: nn.Module,
        contract: ModelSpec,
        objective: Objective,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        self.model = model
        self.contract = contract
        self.objective = objective
        self.memory_format = memory_format
        self.order = [name for name, _ in model.named_parameters()]

    def __call__(self, client: Rows, images: Tensor, targets: Tensor) -> Tensor:
        """Return the local objective on one batch, a scalar; buffers are written in place."""
        given = {**client.leaves, **client.fixed}
        state = {**given, **client.buffers}
        with features_of(self.model, self.contract) as kept:
            images = images.contiguous(memory_format=self.memory_format)
            logits = functional_call(self.model, state, (images,))
        features = kept[-1] if kept else None
        step = Step(logits, targets, {name: given[name] for name in self.order}, features)
        for name, buffer in client.buffers.items():
            if state[name] is not buffer:  # replaced by the model rather than written to
                buffer.copy_(state[name])
        context = ClientContext(client.p, self.contract.head_weight, client.anchors)
        return self.objective(step, context)


@contextmanager
def features_of(model: nn.Module, contract: ModelSpec) -> Iterator[list[Tensor]]:
    """Collect the inputs of the output layer in a block."""
    kept: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        kept.append(inputs[0])

    handle = model.get_submodule(contract.head).register_forward_pre_hook(keep)
    try:
        yield kept
    finally:
        handle.remove()


class Gradients(Protocol):
    """A kernel: losses and gradients of clients side by side."""

    def __call__(
        self, loss: LocalLoss, rows: Rows, images: Tensor, targets: Tensor
    ) -> tuple[Tensor, dict[str, Tensor | None]]:
        """Return losses ``[w]``, detached, and gradients ``[w, ...]`` of the leaves by name.

        Args:
            loss: The local objective of one client.
            rows: The clients' tensors.
            images: ``[w, B, C, H, W]``.
            targets: ``[w, B]``.
        """


def make_kernel(kernel: Kernel, device: torch.device) -> Gradients:
    """Return a kernel by its name."""
    if kernel == "streams":
        return ByClient(STREAMS if device.type == "cuda" else 0)
    return Stacked(unfold=kernel == "unfold")


class Stacked:
    """All clients in one pass.

    Args:
        unfold: Turn convolutions into batched matrix products rather than grouped convolutions.
    """

    def __init__(self, unfold: bool) -> None:
        self.unfold = unfold

    def __call__(
        self, loss: LocalLoss, rows: Rows, images: Tensor, targets: Tensor
    ) -> tuple[Tensor, dict[str, Tensor | None]]:
        """See `Gradients`."""
        kind = images.device.type
        half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        with StackedFunctions(self.unfold, half) if self.unfold or half else nullcontext():
            losses = torch.vmap(loss)(rows, images, targets)
        return losses.detach(), _gradients(losses.sum(), rows.leaves)


class ByClient:
    """Client after client, each on one of a few streams that leave and join the current one.

    Args:
        streams: How many; 0 stays on the current stream, or on a device that has none.
    """

    def __init__(self, streams: int) -> None:
        self.streams = [torch.cuda.Stream() for _ in range(streams)]

    def __call__(
        self, loss: LocalLoss, rows: Rows, images: Tensor, targets: Tensor
    ) -> tuple[Tensor, dict[str, Tensor | None]]:
        """See `Gradients`."""
        losses: list[Tensor] = []
        reached: set[str] = set()
        rows = rows.map(Tensor.detach)
        # Before the streams part, so that each finds zeros.
        stacked = {name: torch.zeros_like(value) for name, value in rows.leaves.items()}
        with self._forked() as streams:
            for i in range(len(images)):
                with torch.cuda.stream(streams[i % len(streams)]):
                    client = _client(rows, i)
                    value = loss(client, images[i], targets[i])
                    losses.append(value.detach())
                    for name, gradient in _gradients(value, client.leaves).items():
                        if gradient is not None:
                            stacked[name][i].copy_(gradient)
                            reached.add(name)
        return torch.stack(losses), {n: v if n in reached else None for n, v in stacked.items()}

    @contextmanager
    def _forked(self) -> Iterator[Sequence[torch.cuda.Stream | None]]:
        if not self.streams:
            yield [None]
            return
        main = torch.cuda.current_stream()
        for stream in self.streams:
            stream.wait_stream(main)
        yield self.streams
        for stream in self.streams:
            main.wait_stream(stream)


def _client(rows: Rows, index: int) -> Rows:
    client = rows.map(lambda value: value[index])
    return client._replace(leaves={n: v.requires_grad_() for n, v in client.leaves.items()})


def _gradients(loss: Tensor, leaves: Tensors) -> dict[str, Tensor | None]:
    # Lightning's backward runs outside autocast, too.
    with torch.autocast(loss.device.type, enabled=False):
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return dict(zip(leaves, found, strict=True))


class StackedFunctions(TorchFunctionMode):
    """Replaces functions that `torch.vmap` or autocast do not treat as with a single client.

    Autocast sees the pieces into which `torch.vmap` takes convolutions and linear layers, not the
    layers; and stacked BatchNorm takes no input in half precision beside weights in full precision.

    Args:
        unfold: Turn two-dimensional convolutions into matrix products. Stacked, a product of
            matrices is a batched one, where a convolution becomes a grouped one. What is not
            covered (groups, dilation, padding by name) stays a convolution.
        half: What autocast casts to; None without it.
    """

    def __init__(self, unfold: bool, half: torch.dtype | None) -> None:
        super().__init__()
        self.unfold = unfold
        self.half = half

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """See `torch.overrides.TorchFunctionMode`."""
        kwargs = kwargs or {}
        if func is F.batch_norm and self.half:
            return _batch_norm(*args, **kwargs)
        if func in _HALVED:
            args = tuple(map(self._halved, args))
            kwargs = {key: self._halved(value) for key, value in kwargs.items()}
        if func is F.conv2d and self.unfold:
            return _convolution(*args, **kwargs)
        return func(*args, **kwargs)

    def _halved(self, value: Any) -> Any:
        return value.to(self.half) if self.half and isinstance(value, Tensor) else value


_CONVOLUTIONS = {
    getattr(F, f"conv{transposed}{dimensions}d")
    for transposed in ("", "_transpose")
    for dimensions in (1, 2, 3)
}
_HALVED = frozenset({F.linear, *_CONVOLUTIONS})


def _batch_norm(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return F.batch_norm(input.to(torch.float32), *args, **kwargs).to(input.dtype)


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] | str = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
) -> Tensor:
    plain = input.ndim == 4 and groups == 1 and _pair(dilation) == (1, 1)
    if isinstance(padding, str) or not plain:
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    (down, right), (top, left) = _pair(stride), _pair(padding)
    if top or left:
        input = F.pad(input, (left, left, top, top))
    height, width = weight.shape[2:]
    windows = input.unfold(2, height, down).unfold(3, width, right)
    # One matrix a client: all samples and places are columns, so that the weight is not repeated.
    columns = windows.permute(1, 4, 5, 0, 2, 3)
    out = weight.flatten(1) @ columns.reshape(weight[0].numel(), -1)
    if bias is not None:
        out = out + bias[:, None].to(out.dtype)
    return out.unflatten(1, columns.shape[3:]).transpose(0, 1).contiguous()


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    return (value[0], value[-1])
