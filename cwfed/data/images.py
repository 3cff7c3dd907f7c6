"""The one form in which every data set reaches the rest of the package."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cwfed.data.limits import require_classes
from cwfed.data.source_order import SourceOrder

Scaling = Literal["pixels", "none"]
"""Scaling of samples for a model: ``pixels`` are scaled from 0 … 255 to [-1, 1], others pass."""


def normalise(pixels: Tensor, dtype: torch.dtype, most: Tensor | int = 255) -> Tensor:
    """Scale uint8 pixels to [0, 1], then ``(x - 0.5) / 0.5`` to [-1, 1].

    Args:
        pixels: uint8.
        dtype: Floating-point type of the result.
        most: 255, on a GPU as a tensor there: by a Python number it divides with a reciprocal,
            which costs the last bit.
    """
    return pixels.to(dtype).div_(most).sub_(0.5).div_(0.5)


@dataclass(frozen=True)
class ImageData:
    """Decoded samples in canonical order: by label, then by the SHA-256 of each sample.

    Mostly images. A source of one's own may hold vectors, ``[N, F]`` of floating point, token ids,
    ``[N, L]`` of integers, or anything else that its model takes: these reach the model as they
    are, floats in the run's precision and integers as int64.

    Legend: N samples, C channels, H x W pixels, K classes.

    Attributes:
        images_NCHW: uint8 pixels, possibly mapped from a file, or other samples ``[N, ...]``;
            never written to.
        labels_N: int64 class indices in ``[0, K)``, ascending.
        class_names: K names, by class index.
        content_hash: SHA-256 (hex) over labels and samples in canonical order; the same for the
            same images from any source.
        name: Name of the data set, for people.
        source_order: The order of the source, where it declares one.
        scaling: Whether samples are pixels that are scaled; None says so of uint8 alone.

    Raises:
        ValueError: There are more classes than a run can handle, numbers that are not finite, or
            pixels that are not uint8.
    """

    images_NCHW: Tensor
    labels_N: Tensor
    class_names: tuple[str, ...]
    content_hash: str
    name: str
    source_order: SourceOrder | None = None
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        """Settle the scaling; check the number of classes and the samples."""
        require_classes(self.name, self.num_classes)
        samples = self.images_NCHW
        if self.scaling is None:
            scaling: Scaling = "pixels" if samples.dtype == torch.uint8 else "none"
            object.__setattr__(self, "scaling", scaling)
        if self.scaling == "pixels" and samples.dtype != torch.uint8:
            raise ValueError(f"{self.name}: expected pixels of uint8, got {samples.dtype}")
        if samples.is_floating_point() and not samples.isfinite().all():
            raise ValueError(f"{self.name}: expected finite numbers, got some that are not")

    def __len__(self) -> int:
        """Return N."""
        return len(self.labels_N)

    @property
    def num_classes(self) -> int:
        """Return K."""
        return len(self.class_names)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Return the shape of a sample: (C, H, W) of an image."""
        return tuple(self.images_NCHW.shape[1:])

    @property
    def kind(self) -> str:
        """Return what a sample is, for people: such as ``1 x 28 x 28 images``."""
        size = " x ".join(map(str, self.input_shape))
        if len(self.input_shape) == 3:
            return f"{size} images"
        if len(self.input_shape) == 1:
            numbers = self.images_NCHW.is_floating_point()
            return f"vectors of {size} numbers" if numbers else f"sequences of {size} tokens"
        return f"samples of shape {size or '()'}"

    def served(self, samples: Tensor, dtype: torch.dtype, most: Tensor | int = 255) -> Tensor:
        """Return samples as a model gets them.

        Args:
            samples: Some of `images_NCHW`, on any device.
            dtype: Floating-point type of the run.
            most: See `normalise`.
        """
        if self.scaling == "pixels":
            return normalise(samples, dtype, most)
        return samples.to(dtype if samples.is_floating_point() else torch.int64)

    def served_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the type of samples as a model gets them: integers stay integers."""
        return self.served(self.images_NCHW[:0], dtype).dtype

    def class_counts_K(self) -> Tensor:
        """Return the number of samples of each class, int64 ``[K]``."""
        return torch.bincount(self.labels_N, minlength=self.num_classes)
