"""Generated images with a class signal that a small model can learn."""

from pathlib import Path

import numpy as np

from cwfed.data.cache import in_memory
from cwfed.data.decoding import Samples
from cwfed.data.images import ImageData
from cwfed.data.limits import require_classes
from cwfed.data.sources.base import Source
from cwfed.functional.seeding import numpy_generator
from cwfed.messages.checks import require_integer

CELLS = 4
NOISE = 64


class SyntheticImages(Source):
    """Generated images: a random pattern for each class, under noise.

    A class's pattern is a coarse grid of random gray or colour values; each image adds uniform
    noise to every pixel. Only integers are drawn, so the pixels are the same on every machine, and
    the images of a class do not depend on the number of classes.

    Args:
        num_classes: Number of classes.
        samples_per_class: Images of each class.
        image_size: Side of the images in pixels.
        channels: 1 or 3.
        seed: Seed of patterns and noise.

    Raises:
        ValueError: An argument is out of range.
    """

    name = "synthetic"

    def __init__(
        self,
        num_classes: int = 10,
        samples_per_class: int = 100,
        image_size: int = 28,
        channels: int = 1,
        seed: int = 0,
    ) -> None:
        self.num_classes = require_integer("num_classes", num_classes, 1)
        require_classes("num_classes", num_classes)
        self.samples_per_class = require_integer("samples_per_class", samples_per_class, 1)
        self.image_size = require_integer("image_size", image_size, 1)
        if channels not in (1, 3):
            raise ValueError(f"channels: expected 1 or 3, got {channels!r}")
        self.channels = channels
        self.seed = require_integer("seed", seed, 0)

    def load(self, data_dir: Path | None = None, *, cache_dir: Path | None = None) -> ImageData:
        """Return all images in canonical order.

        Args:
            data_dir: Not used.
            cache_dir: Not used: making the images is faster than reading them.
        """
        classes = range(self.num_classes)
        images_NCHW = np.concatenate([self._class_images(label) for label in classes])
        labels_N = np.repeat(np.arange(self.num_classes), self.samples_per_class)
        names = tuple(str(label) for label in classes)
        samples = Samples.from_pixels(images_NCHW, labels_N)
        return in_memory(samples, class_names=names, name=self.name)

    def _class_images(self, label: int) -> np.ndarray:
        generator = numpy_generator(self.seed, f"synthetic images/class {label}")
        size, cells = self.image_size, min(CELLS, self.image_size)
        grid = generator.integers(0, 256, (self.channels, cells, cells), dtype=np.int16)
        nearest = np.arange(size) * cells // size
        pattern_CHW = grid[:, nearest][:, :, nearest]
        shape = (self.samples_per_class, self.channels, size, size)
        noise_NCHW = generator.integers(-NOISE, NOISE + 1, shape, dtype=np.int16)
        return np.clip(pattern_CHW + noise_NCHW, 0, 255).astype(np.uint8)
