"""scikit-learn's digits: real images without a download."""

from pathlib import Path

import numpy as np
from PIL import Image

from cwfed.data.cache import in_memory
from cwfed.data.decoding import Samples
from cwfed.data.images import ImageData
from cwfed.data.sources.base import Source
from cwfed.messages.checks import require_integer


class Digits(Source):
    """scikit-learn's digits: 1,797 handwritten digits, gray, enlarged from 8 x 8.

    Args:
        image_size: Side of the images in pixels, at least 8 (bilinear).

    Raises:
        ValueError: `image_size` is not an integer of at least 8.
    """

    name = "digits"

    def __init__(self, image_size: int = 28) -> None:
        self.image_size = require_integer("image_size", image_size, 8)

    def load(self, data_dir: Path | None = None, *, cache_dir: Path | None = None) -> ImageData:
        """Return all images in canonical order; they come with scikit-learn.

        Args:
            data_dir: Not used.
            cache_dir: Not used: making the images is faster than reading them.
        """
        # Only this source needs scikit-learn, which takes a second to import.
        from sklearn.datasets import load_digits

        digits = load_digits()
        # Values run from 0 to 16.
        small_NHW = np.rint(digits.images * (255 / 16)).astype(np.uint8)
        size = (self.image_size, self.image_size)
        images_NHW = np.stack(
            [
                np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR))
                for image in small_NHW
            ]
        )
        samples = Samples.from_pixels(images_NHW[:, None], digits.target)
        names = tuple(str(name) for name in digits.target_names)
        return in_memory(samples, class_names=names, name=self.name)
