"""The one form in which every data set reaches the rest of the package."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cwfed.data.limits import require_classes
from cwfed.data.source_order import SourceOrder


@dataclass(frozen=True)
class ImageData:
    """Decoded images in canonical order: by label, then by the SHA-256 of each sample.

    Legend: N samples, C channels, H x W pixels, K classes.

    Attributes:
        images_NCHW: uint8 pixels, possibly mapped from a file; never written to.
        labels_N: int64 class indices in ``[0, K)``, ascending.
        class_names: K names, by class index.
        content_hash: SHA-256 (hex) over labels and samples in canonical order; the same for the
            same images from any source.
        name: Name of the data set, for people.
        source_order: The order of the source, where it declares one.

    Raises:
        ValueError: There are more classes than a run can handle.
    """

    images_NCHW: Tensor
    labels_N: Tensor
    class_names: tuple[str, ...]
    content_hash: str
    name: str
    source_order: SourceOrder | None = None

    def __post_init__(self) -> None:
        """Check the number of classes."""
        require_classes(self.name, self.num_classes)

    def __len__(self) -> int:
        """Return N."""
        return len(self.labels_N)

    @property
    def num_classes(self) -> int:
        """Return K."""
        return len(self.class_names)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Return (C, H, W)."""
        _, channels, height, width = self.images_NCHW.shape
        return channels, height, width

    def class_counts_K(self) -> Tensor:
        """Return the number of samples of each class, int64 ``[K]``."""
        return torch.bincount(self.labels_N, minlength=self.num_classes)
