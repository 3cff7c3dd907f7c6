"""Decoded data sets on disk: written once, mapped into memory from then on.

An entry is a folder named by its key, with ``images.npy`` (uint8 ``[N, C, H, W]``), ``labels.npy``
(int64 ``[N]``), ``meta.json`` and, where the source declares an order, ``order.npy`` (int64
``[N]``). It appears by one rename, so it is there whole or not at all.
"""

import hashlib
import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch

from cwfed.data.decoding import Samples
from cwfed.data.images import ImageData
from cwfed.data.npy import write_npy
from cwfed.data.source_order import ORDER, Sizes, SourceOrder, load_order, save_order, source_order
from cwfed.records.reading import read_text, require_no_link, require_regular

FORMAT_VERSION = 1
SPOT_CHECKED = 64
CHUNK = 1 << 20
STALE_SECONDS = 24 * 3600

log = logging.getLogger("cwfed")


def user_cache_dir() -> Path:
    """Return ``$XDG_CACHE_HOME/cwfed``, by default ``~/.cache/cwfed``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cwfed"


def resolve_cache_dir(cache_dir: Path | None) -> Path:
    """Return the given folder, else ``$CWFED_CACHE``, else ``decoded`` in the user's cache."""
    if cache_dir is not None:
        return Path(cache_dir).expanduser()
    given = os.environ.get("CWFED_CACHE")
    return Path(given).expanduser() if given else user_cache_dir() / "decoded"


def cache_key(settings: Mapping[str, Any], files: Sequence[Path]) -> str:
    """Return the SHA-256 (hex) over everything the decoded pixels follow from.

    Hashed are the cache format, the decoder's version, the settings, and each source file's name
    (below the folder common to all) and content.

    Args:
        settings: What else shapes the result, as JSON values.
        files: The source files.
    """
    root = os.path.commonpath([os.path.abspath(path.parent) for path in files])
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        digests = list(pool.map(_file_checksum, files))
    names = [Path(os.path.relpath(path, root)).as_posix() for path in files]
    content = {
        "format": FORMAT_VERSION,
        "pillow": PIL.__version__,
        "settings": dict(settings),
        "files": sorted(zip(names, digests, strict=True)),
    }
    return hashlib.sha256(_canonical_json(content)).hexdigest()


def read_entry(cache_dir: Path, key: str) -> ImageData | None:
    """Map a cached data set, or return ``None`` if there is no whole and sound entry.

    Args:
        cache_dir: Folder of entries.
        key: What `cache_key` returned.
    """
    entry = cache_dir / key
    if not entry.is_dir():
        return None
    try:
        return _open_entry(entry, key)
    # A file that somebody else left may be anything.
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        EOFError,
        RecursionError,
        MemoryError,
    ) as error:
        log.warning("%s: the cache entry is not usable (%s); decoding again", entry, error)
        return None


def write_entry(
    cache_dir: Path,
    key: str,
    samples: Samples,
    *,
    class_names: Sequence[str],
    name: str,
    order: str | None = None,
    sizes: Sizes | None = None,
) -> ImageData:
    """Cache decoded samples in canonical order and return them mapped.

    If the folder cannot be written, a warning says so and the samples are returned in memory.

    Args:
        cache_dir: Folder of entries, made if missing.
        key: What `cache_key` returned.
        samples: The decoded samples.
        class_names: Names by class index.
        name: Name of the data set.
        order: Name of the order in which the samples come, where the source declares it.
        sizes: See `SourceOrder`.
    """
    canonical = samples.canonical_order()
    declared = source_order(order, canonical, sizes) if order else None
    temporary = cache_dir / f".writing-{uuid.uuid4().hex}"
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        _remove_stale(cache_dir)
        temporary.mkdir()
        _fill(temporary, key, samples, canonical, class_names, name, declared)
        data = _publish(temporary, cache_dir, key)
    except OSError as error:
        log.warning("%s: cannot write the cache (%s); going on without it", cache_dir, error)
        data = in_memory(samples, class_names=class_names, name=name)
        return replace(data, source_order=declared)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    log.info("%s: cached at %s", name, cache_dir / key)
    return data


def in_memory(samples: Samples, *, class_names: Sequence[str], name: str) -> ImageData:
    """Return decoded samples in canonical order without a cache.

    Args:
        samples: The decoded samples.
        class_names: Names by class index.
        name: Name of the data set.
    """
    canonical = samples.canonical_order()
    return ImageData(
        images_NCHW=torch.from_numpy(samples.images_NCHW[canonical]),
        labels_N=torch.from_numpy(samples.labels_N[canonical]),
        class_names=tuple(class_names),
        content_hash=samples.content_hash(canonical),
        name=name,
    )


def _fill(
    folder: Path,
    key: str,
    samples: Samples,
    canonical: np.ndarray,
    class_names: Sequence[str],
    name: str,
    order: SourceOrder | None,
) -> None:
    labels = samples.labels_N[canonical]
    images = samples.images_NCHW
    write_npy(folder / "images.npy", images, canonical)
    write_npy(folder / "labels.npy", samples.labels_N, canonical)
    files = ["images.npy", "labels.npy"]
    body: dict[str, Any] = {
        "format": FORMAT_VERSION,
        "key": key,
        "name": name,
        "class_names": list(class_names),
        "content_hash": samples.content_hash(canonical),
        "shape": list(images.shape),
        "labels_sha256": hashlib.sha256(labels).hexdigest(),
        "spot_sha256": _spot_hash(images, canonical),
    }
    if order:
        files.append(ORDER)
        body["order"] = save_order(folder, order)
    body["bytes"] = {file: (folder / file).stat().st_size for file in files}
    meta = {"sha256": hashlib.sha256(_canonical_json(body)).hexdigest(), "meta": body}
    with (folder / "meta.json").open("w", encoding="utf-8") as file:
        json.dump(meta, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def _publish(temporary: Path, cache_dir: Path, key: str) -> ImageData:
    """Rename a finished entry into place; another writer's sound entry is taken instead."""
    entry = cache_dir / key
    for _ in range(10):
        try:
            os.rename(temporary, entry)
        except OSError:
            if not os.path.lexists(entry):
                raise
            if (data := read_entry(cache_dir, key)) is not None:
                return data
            _discard(entry)
            continue
        _sync_folder(cache_dir)
        return _open_entry(entry, key)
    raise OSError(f"{entry}: other writers kept replacing the entry")


def _discard(entry: Path) -> None:
    """Move a broken entry aside, then delete it: nobody sees it half deleted."""
    aside = entry.parent / f".writing-{uuid.uuid4().hex}"
    try:
        os.rename(entry, aside)
    except FileNotFoundError:  # another writer was faster
        return
    if aside.is_dir() and not aside.is_symlink():
        shutil.rmtree(aside, ignore_errors=True)
    else:
        aside.unlink(missing_ok=True)


def _remove_stale(cache_dir: Path) -> None:
    """Delete what writers that were killed long ago left behind."""
    for left in cache_dir.glob(".writing-*"):
        try:
            if time.time() - left.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
        except FileNotFoundError:
            continue


def _open_entry(entry: Path, key: str) -> ImageData:
    """Map an entry; raise ValueError, OSError, KeyError or TypeError for an unsound one."""
    for path in (entry, *(entry / name for name in ("images.npy", "labels.npy", "meta.json"))):
        require_no_link(path, "an entry holds its own files")
        if path != entry:
            require_regular(path)
    saved = json.loads(read_text(entry / "meta.json"))
    meta = saved["meta"]
    _expect(
        "checksum of meta.json", hashlib.sha256(_canonical_json(meta)).hexdigest(), saved["sha256"]
    )
    _expect("format", meta["format"], FORMAT_VERSION)
    _expect("key", meta["key"], key)
    for file, size in meta["bytes"].items():
        _expect(f"size of {file}", (entry / file).stat().st_size, size)
    # Copy on write: torch gets a writable array, the file stays as it is.
    images = np.load(entry / "images.npy", mmap_mode="c", allow_pickle=False)
    labels = np.load(entry / "labels.npy", allow_pickle=False)
    _expect("images.npy", (str(images.dtype), list(images.shape)), ("uint8", meta["shape"]))
    _expect("labels.npy", (str(labels.dtype), len(labels)), ("int64", meta["shape"][0]))
    _expect("labels", hashlib.sha256(labels).hexdigest(), meta["labels_sha256"])
    _expect("names", [type(name) for name in meta["class_names"]], [str] * len(meta["class_names"]))
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(meta["class_names"]):
        raise ValueError(f"labels: expected classes below {len(meta['class_names'])}")
    _expect("images", _spot_hash(images, np.arange(len(images))), meta["spot_sha256"])
    return ImageData(
        images_NCHW=torch.from_numpy(np.asarray(images)),
        labels_N=torch.from_numpy(labels),
        class_names=tuple(meta["class_names"]),
        content_hash=meta["content_hash"],
        name=meta["name"],
        source_order=load_order(entry, meta["order"], len(labels)) if "order" in meta else None,
    )


def _expect(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise ValueError(f"{what}: expected {expected}, found {found}")


def _spot_hash(images: np.ndarray, order: np.ndarray) -> str:
    """Return the SHA-256 of a few images across the file: hashing all would cost every start."""
    positions = np.linspace(0, len(order) - 1, SPOT_CHECKED).astype(np.int64)
    return hashlib.sha256(images[order[positions]].tobytes()).hexdigest()


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where the system can sync a folder."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _file_checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


def _canonical_json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
