"""From encoded image files to one uint8 array in canonical order.

Legend: N samples, C channels, H x W pixels.
"""

import hashlib
import io
import os
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cwfed.data.limits import MOST_ENCODED, MOST_PIXELS, require_memory
from cwfed.messages.terminal import Terminal

Mode = Literal["RGB", "L"]

FORMATS = ("PNG", "JPEG", "WEBP")
GRAY_MODES = frozenset({"1", "L", "LA"})
EIGHT_BIT_MODES = GRAY_MODES | {"P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"}
CONTENT_VERSION = "cwfed-content/1"
BATCH = 1024
BATCH_BYTES = 1 << 27
LARGE_PIXELS = 1 << 22
_one_at_a_time = threading.Lock()


class Encoded(NamedTuple):
    """One sample as it lies in a file.

    Attributes:
        file: Path of the file, for error messages.
        item: What of the file, such as ``"row 17"``; empty if the file is the sample.
        data: The image file's bytes.
        label: Class index.
    """

    file: str
    item: str
    data: bytes
    label: int

    @property
    def where(self) -> str:
        """Return the place a person would look at."""
        return f"{self.file}, {self.item}" if self.item else self.file


@dataclass(frozen=True)
class Samples:
    """Decoded samples in the order they were read.

    Attributes:
        images_NCHW: uint8 pixels.
        labels_N: int64 class indices.
        digests_N32: uint8, the SHA-256 of each sample: of the file's bytes for a JPEG, since
            decoders round differently, and of the pixels (contiguous C, H, W) otherwise.
    """

    images_NCHW: np.ndarray
    labels_N: np.ndarray
    digests_N32: np.ndarray

    @classmethod
    def from_pixels(cls, images_NCHW: np.ndarray, labels_N: np.ndarray) -> "Samples":
        """Digest the pixels of every image."""
        images_NCHW = np.ascontiguousarray(images_NCHW, dtype=np.uint8)
        digests = b"".join(hashlib.sha256(image).digest() for image in images_NCHW)
        digests_N32 = np.frombuffer(digests, dtype=np.uint8).reshape(-1, 32)
        return cls(images_NCHW, np.asarray(labels_N, dtype=np.int64), digests_N32)

    @classmethod
    def concatenate(cls, parts: list["Samples"]) -> "Samples":
        """Join the parts of a data set, such as its training and its test images."""
        return cls(
            np.concatenate([part.images_NCHW for part in parts]),
            np.concatenate([part.labels_N for part in parts]),
            np.concatenate([part.digests_N32 for part in parts]),
        )

    def canonical_order(self) -> np.ndarray:
        """Return the permutation that sorts by label, then by digest, as int64 ``[N]``."""
        words_N4 = np.ascontiguousarray(self.digests_N32).view(">u8")
        return np.lexsort((*words_N4.T[::-1], self.labels_N))

    def content_hash(self, order: np.ndarray) -> str:
        """Return the SHA-256 (hex) over shape, labels and digests in canonical order.

        Hashed are a version tag with the image shape, then for each sample its label (8 bytes,
        little endian) and its digest (32 bytes).

        Args:
            order: What `canonical_order` returned.
        """
        shape = "x".join(str(size) for size in self.images_NCHW.shape[1:])
        labels_N8 = self.labels_N[order].astype("<i8").view(np.uint8).reshape(-1, 8)
        records = np.concatenate([labels_N8, self.digests_N32[order]], axis=1)
        return hashlib.sha256(
            f"{CONTENT_VERSION} {shape}\n".encode() + records.tobytes()
        ).hexdigest()


def decode_samples(
    encoded: Iterable[Encoded],
    count: int,
    *,
    mode: Mode,
    image_size: int | None = None,
    title: str = "images",
) -> Samples:
    """Decode a stream of image files.

    Args:
        encoded: The samples, `count` of them.
        count: Number of samples, positive.
        mode: ``"L"`` for one channel, ``"RGB"`` for three; other images are converted.
        image_size: Resize every image to this square (bilinear); ``None`` keeps the size, which
            must then be the same for all.
        title: Name shown beside the progress bar.

    Raises:
        ValueError: An image is damaged, not 8 bit, animated, too large, transparent or of another
            size than the first, or all together do not fit into memory; the message names it.
    """
    labels_N = np.empty(0, dtype=np.int64)
    digests_N32 = np.empty((0, 32), dtype=np.uint8)
    images_NCHW = np.empty((0, 0, 0, 0), dtype=np.uint8)
    first, position = "", 0
    decode = partial(_decode_one, mode=mode, image_size=image_size)
    for sample, pixels_CHW, digest in _parallel(decode, encoded, count, title):
        if position == 0:
            first = sample.where
            require_memory(first, count, pixels_CHW.shape)
            labels_N = np.empty(count, dtype=np.int64)
            digests_N32 = np.empty((count, 32), dtype=np.uint8)
            images_NCHW = np.empty((count, *pixels_CHW.shape), dtype=np.uint8)
        elif pixels_CHW.shape != images_NCHW.shape[1:]:
            raise ValueError(_size_message(sample.where, pixels_CHW, first, images_NCHW))
        images_NCHW[position] = pixels_CHW
        labels_N[position] = sample.label
        digests_N32[position] = np.frombuffer(digest, dtype=np.uint8)
        position += 1
    assert position == count, f"{position} samples came, {count} were announced"
    return Samples(images_NCHW, labels_N, digests_N32)


def decode_image(data: bytes, *, mode: Mode, image_size: int | None = None) -> np.ndarray:
    """Decode one PNG, JPEG or WebP file into uint8 ``[C, H, W]``.

    Args:
        data: The file's bytes.
        mode: ``"L"`` or ``"RGB"``.
        image_size: Side of the square to resize to, or ``None``.

    Raises:
        ValueError: The image cannot be taken as 8-bit pixels; the message says why.
    """
    with _open(data) as image, _bounded(image):
        if image.format == "PNG":
            _check_png(data)
        _refuse_what_would_lose(image, data)
        image = image.convert(mode)
        if image_size is not None and image.size != (image_size, image_size):
            image = image.resize((image_size, image_size), Image.Resampling.BILINEAR)
        pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if mode == "L" else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def is_gray(data: bytes) -> bool:
    """Return whether an image file holds one channel, from its header alone."""
    with _open(data) as image:
        return image.mode in GRAY_MODES or image.mode.startswith("I;16")


def located(sample: Encoded, error: Exception) -> ValueError:
    """Return the error about one sample that names its place."""
    reason = str(error) or type(error).__name__
    return ValueError(f"{sample.where}: cannot read the image: {reason}")


def _open(data: bytes) -> Image.Image:
    if len(data) > MOST_ENCODED:
        raise ValueError(f"expected at most {MOST_ENCODED:,} bytes, got {len(data):,}")
    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.UnidentifiedImageError as error:
        raise ValueError(
            f"expected a PNG, JPEG or WebP file, got {len(data)} bytes that begin {data[:8]!r}"
        ) from error


def _bounded(image: Image.Image) -> AbstractContextManager[object]:
    """Refuse an image that unpacks to too much; let large ones wait for one another."""
    pixels = image.width * image.height
    limit = min(MOST_PIXELS, Image.MAX_IMAGE_PIXELS or MOST_PIXELS)
    if pixels > limit:
        raise ValueError(f"{image.width} x {image.height} pixels are more than the {limit} allowed")
    return _one_at_a_time if pixels > LARGE_PIXELS else nullcontext()


def _check_png(data: bytes) -> None:
    """Raise ValueError unless all chunks of a PNG are there and whole.

    Pillow stops reading once it has enough pixels and does not compare the checksums of the pixel
    data, so that a changed byte could pass for another image.
    """
    position, kind = 8, b""
    while kind != b"IEND":
        length = int.from_bytes(data[position : position + 4], "big")
        end = position + 8 + length
        if end + 4 > len(data):
            raise ValueError("the PNG file is truncated")
        kind = data[position + 4 : position + 8]
        if zlib.crc32(data[position + 4 : end]) != int.from_bytes(data[end : end + 4], "big"):
            raise ValueError(f"a wrong checksum in the PNG file's chunk {kind!r}")
        position = end + 4


def _refuse_what_would_lose(image: Image.Image, data: bytes) -> None:
    """Raise for images that a conversion to 8-bit L or RGB would change without a word."""
    # Pillow reduces a 16-bit colour PNG to 8 bits silently; only the header's depth byte tells.
    deep = image.format == "PNG" and data[24] == 16
    if deep or image.mode not in EIGHT_BIT_MODES:
        raise ValueError(f"expected 8 bits a channel, got mode {image.mode} with more")
    # A camera's JPEG may carry previews behind the picture (MPO); the picture comes first.
    if image.format != "MPO" and getattr(image, "n_frames", 1) > 1:
        raise ValueError("expected one image, got an animation")
    # The alpha channel is dropped, so it must not matter.
    if image.has_transparency_data and image.convert("RGBA").getchannel("A").getextrema() != (
        255,
        255,
    ):
        raise ValueError("expected an opaque image, got transparent pixels")


def _decode_one(
    sample: Encoded, *, mode: Mode, image_size: int | None
) -> tuple[Encoded, np.ndarray, bytes]:
    try:
        pixels_CHW = decode_image(sample.data, mode=mode, image_size=image_size)
    except Exception as error:  # damaged files make Pillow raise nearly anything
        raise located(sample, error) from error
    jpeg = sample.data.startswith(b"\xff\xd8\xff")
    content = sample.data if jpeg else pixels_CHW.tobytes()
    return sample, pixels_CHW, hashlib.sha256(content).digest()


def _parallel(
    decode: Callable[[Encoded], tuple[Encoded, np.ndarray, bytes]],
    encoded: Iterable[Encoded],
    count: int,
    title: str,
) -> Iterator[tuple[Encoded, np.ndarray, bytes]]:
    """Decode batch by batch in threads, in order, so that few encoded samples are held at once."""
    columns = (
        TextColumn("decoding {task.description}", markup=False),
        BarColumn(),
        TimeRemainingColumn(),
    )
    console = Terminal(stderr=True)
    bar = Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty())
    with bar, ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        task = bar.add_task(title, total=count)
        for batch in _batches(encoded):
            yield from pool.map(decode, batch)
            bar.advance(task, len(batch))


def _batches(encoded: Iterable[Encoded]) -> Iterator[list[Encoded]]:
    """Cut a stream into lists of up to `BATCH` samples and about `BATCH_BYTES` bytes."""
    batch: list[Encoded] = []
    held = 0
    for sample in encoded:
        batch.append(sample)
        held += len(sample.data)
        if len(batch) == BATCH or held >= BATCH_BYTES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _size_message(where: str, pixels: np.ndarray, first: str, images: np.ndarray) -> str:
    height, width = pixels.shape[1:]
    expected_height, expected_width = images.shape[2:]
    return (
        f"{where}: expected {expected_width} x {expected_height} pixels like {first}, got "
        f"{width} x {height}; a data set needs one size (ImageFolder: set image_size to resize)"
    )
