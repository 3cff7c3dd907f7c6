"""The cache of decoded data: whole or not at all, and never trusted blindly."""

import hashlib
import json
import multiprocessing
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import small_images

from cwfed.data import cache
from cwfed.data.cache import cache_key, in_memory, read_entry, resolve_cache_dir, write_entry
from cwfed.data.decoding import Samples
from cwfed.data.source_order import SourceOrder, load_order, save_order

KEY = "a" * 64
NAMES = tuple("0123456789")


@pytest.fixture
def samples():
    return Samples.from_pixels(*small_images(10, 30, (3, 8, 8)))


def write(folder, samples, **options):
    return write_entry(folder, KEY, samples, class_names=NAMES, name="small", **options)


def assert_same(one, other):
    assert torch.equal(one.images_NCHW, other.images_NCHW)
    assert torch.equal(one.labels_N, other.labels_N)
    assert (one.class_names, one.content_hash, one.name) == (
        other.class_names,
        other.content_hash,
        other.name,
    )


def test_written_read_and_made_in_memory_are_the_same(tmp_path, samples):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = write(tmp_path, samples)
        read = read_entry(tmp_path, KEY)
    assert_same(written, read)
    assert_same(read, in_memory(samples, class_names=NAMES, name="small"))
    assert sorted(path.name for path in (tmp_path / KEY).iterdir()) == [
        "images.npy",
        "labels.npy",
        "meta.json",
    ]
    assert [path.name for path in tmp_path.iterdir()] == [KEY]


def test_other_chunks_than_one(tmp_path):
    samples = Samples.from_pixels(*small_images(10, 1000, (1, 2, 2)))
    assert_same(write(tmp_path, samples), in_memory(samples, class_names=NAMES, name="small"))


def test_writing_to_a_mapped_tensor_leaves_the_file(tmp_path, samples):
    data = write(tmp_path, samples)
    before = data.images_NCHW.clone()
    data.images_NCHW.zero_()
    assert torch.equal(read_entry(tmp_path, KEY).images_NCHW, before)


def test_no_entry(tmp_path):
    assert read_entry(tmp_path, KEY) is None
    assert read_entry(tmp_path / "missing", KEY) is None


def edit_meta(entry, seal=True, **changes):
    saved = json.loads((entry / "meta.json").read_text())
    saved["meta"].update(changes)
    if seal:
        saved["sha256"] = hashlib.sha256(cache._canonical_json(saved["meta"])).hexdigest()
    (entry / "meta.json").write_text(json.dumps(saved))


def shorten(path):
    path.write_bytes(path.read_bytes()[:-1])


def zero_tail(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))


class Booby:
    """Leaves a trace where its pickle is loaded."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


def save_objects(entry):
    """Put a pickle into labels.npy that the metadata vouch for."""
    trap = np.array([Booby(entry / "loaded")], dtype=object)
    np.save(entry / "labels.npy", trap, allow_pickle=True)
    saved = json.loads((entry / "meta.json").read_text())["meta"]["bytes"]
    edit_meta(entry, bytes={**saved, "labels.npy": (entry / "labels.npy").stat().st_size})


def lengthen(path):
    path.write_bytes(path.read_bytes() + b"x")


def replace_by_pipe(path):
    path.unlink()
    os.mkfifo(path)


def claim_huge(entry):
    """Labels whose header asks for more memory than there is."""
    path = entry / "labels.npy"
    path.write_bytes(path.read_bytes().replace(b"(300,), }" + b" " * 15, b"(%d,), }" % 10**17))
    saved = json.loads((entry / "meta.json").read_text())["meta"]["bytes"]
    edit_meta(entry, bytes={**saved, "labels.npy": path.stat().st_size})


DAMAGES = {
    "no meta": lambda entry: (entry / "meta.json").unlink(),
    "no images": lambda entry: (entry / "images.npy").unlink(),
    "no labels": lambda entry: (entry / "labels.npy").unlink(),
    "short images": lambda entry: shorten(entry / "images.npy"),
    "long images": lambda entry: lengthen(entry / "images.npy"),
    "short labels": lambda entry: shorten(entry / "labels.npy"),
    "short meta": lambda entry: shorten(entry / "meta.json"),
    "zeros in images": lambda entry: zero_tail(entry / "images.npy"),
    "zeros in labels": lambda entry: zero_tail(entry / "labels.npy"),
    "no header": lambda entry: (entry / "images.npy").write_bytes(
        bytes((entry / "images.npy").stat().st_size)
    ),
    "edited meta": lambda entry: edit_meta(entry, seal=False, class_names=["x"]),
    "other version": lambda entry: edit_meta(entry, format=0),
    "other key": lambda entry: edit_meta(entry, key="b" * 64),
    "other shape": lambda entry: edit_meta(entry, shape=[300, 3, 8, 9]),
    "list for meta": lambda entry: (entry / "meta.json").write_text("[]"),
    "pickle": save_objects,
    "deep meta": lambda entry: (entry / "meta.json").write_text("[" * 100_000),
    "pipe for meta": lambda entry: replace_by_pipe(entry / "meta.json"),
    "names that are no text": lambda entry: edit_meta(entry, class_names=[0] * 10),
    "fewer names than classes": lambda entry: edit_meta(entry, class_names=["x"]),
    "huge labels": lambda entry: claim_huge(entry),
    "empty": lambda entry: [path.unlink() for path in entry.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entries_are_found_and_replaced(tmp_path, samples, damage, caplog):
    good = write(tmp_path, samples)
    expected = good.images_NCHW.clone()
    DAMAGES[damage](tmp_path / KEY)
    assert read_entry(tmp_path, KEY) is None
    assert not (tmp_path / KEY / "loaded").exists()
    assert "decoding again" in caplog.text
    assert torch.equal(write(tmp_path, samples).images_NCHW, expected)
    assert read_entry(tmp_path, KEY) is not None
    assert [path.name for path in tmp_path.iterdir()] == [KEY]


ORDER_DAMAGES = {
    "gone": lambda path: path.unlink(),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-8]),
    "swapped": lambda path: np.save(path, np.load(path)[::-1]),
    "floats": lambda path: np.save(path, np.load(path).astype(float)),
    "pickle": lambda path: np.save(path, np.array([{}] * 300, dtype=object), allow_pickle=True),
    "pipe": replace_by_pipe,
}


@pytest.mark.parametrize("damage", ORDER_DAMAGES)
def test_a_damaged_order_is_found_and_replaced(tmp_path, samples, damage, caplog):
    good = write(tmp_path, samples, order="as it came").source_order
    assert good.indices_N.argsort().tolist() == samples.canonical_order().tolist()
    assert torch.equal(read_entry(tmp_path, KEY).source_order.indices_N, good.indices_N)
    ORDER_DAMAGES[damage](tmp_path / KEY / "order.npy")
    assert read_entry(tmp_path, KEY) is None
    assert "decoding again" in caplog.text
    again = write(tmp_path, samples, order="as it came").source_order
    assert torch.equal(again.indices_N, good.indices_N)


def test_an_order_that_repeats_a_sample_is_refused(tmp_path):
    order = SourceOrder("as it came", torch.tensor([0, 2, 2]))
    with pytest.raises(ValueError, match="expected every sample once"):
        load_order(tmp_path, save_order(tmp_path, order), 3)


def test_a_file_where_the_entry_belongs(tmp_path, samples):
    (tmp_path / KEY).write_text("foreign")
    assert read_entry(tmp_path, KEY) is None
    write(tmp_path, samples)
    assert read_entry(tmp_path, KEY) is not None


def test_an_unwritable_folder_is_told_and_done_without(tmp_path, samples, caplog):
    (tmp_path / "file").write_text("")
    data = write(tmp_path / "file" / "cache", samples)
    assert_same(data, in_memory(samples, class_names=NAMES, name="small"))
    assert "going on without it" in caplog.text


def test_a_full_disk_leaves_nothing(tmp_path, samples, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "fsync", full)
    data = write(tmp_path, samples)
    assert len(data) == 300
    assert "No space left" in caplog.text
    assert list(tmp_path.iterdir()) == []


def write_in_process(folder, barrier, queue):
    samples = Samples.from_pixels(*small_images(10, 300, (3, 8, 8)))
    barrier.wait()
    queue.put(write(folder, samples).content_hash)


@pytest.mark.parametrize("before", ["nothing", "damaged"])
def test_concurrent_writers(tmp_path, samples, before):
    if before == "damaged":
        write(tmp_path, samples)
        zero_tail(tmp_path / KEY / "images.npy")
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(2), context.Queue()
    writers = [
        context.Process(target=write_in_process, args=(tmp_path, barrier, queue)) for _ in range(2)
    ]
    for writer in writers:
        writer.start()
    hashes = {queue.get(timeout=60) for _ in writers}
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert {read_entry(tmp_path, KEY).content_hash} == hashes
    assert [path.name for path in tmp_path.iterdir()] == [KEY]


def test_the_writer_that_comes_second_takes_the_first_ones_entry(tmp_path, samples, monkeypatch):
    real = os.rename

    def late(source, target):
        monkeypatch.setattr(cache.os, "rename", real)
        write(tmp_path, samples)
        inode.append((tmp_path / KEY).stat().st_ino)
        real(source, target)

    inode = []
    monkeypatch.setattr(cache.os, "rename", late)
    write(tmp_path, samples)
    assert (tmp_path / KEY).stat().st_ino == inode[0]
    assert [path.name for path in tmp_path.iterdir()] == [KEY]


def test_what_killed_writers_left_is_removed_a_day_later(tmp_path, samples):
    for name, age in (("old", 25), ("new", 1)):
        left = tmp_path / f".writing-{name}"
        left.mkdir()
        (left / "images.npy").write_bytes(b"x")
        then = time.time() - age * 3600
        os.utime(left, (then, then))
    write(tmp_path, samples)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".writing-new", KEY]


def test_key_follows_content_names_settings_and_version(tmp_path, monkeypatch):
    files = [tmp_path / "x" / "a", tmp_path / "y" / "b"]
    for file in files:
        file.parent.mkdir()
        file.write_bytes(file.name.encode())
    key = cache_key({"size": 1}, files)
    assert cache_key({"size": 1}, files[::-1]) == key
    assert cache_key({"size": 2}, files) != key
    monkeypatch.setattr(cache, "FORMAT_VERSION", 99)
    assert cache_key({"size": 1}, files) != key
    monkeypatch.undo()
    os.utime(files[0], (1, 1))
    assert cache_key({"size": 1}, files) == key
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in files:
        file.parent.rename(moved / file.parent.name)
    files = [moved / "x" / "a", moved / "y" / "b"]
    assert cache_key({"size": 1}, files) == key
    renamed = [files[0].rename(files[0].with_name("c")), files[1]]
    assert cache_key({"size": 1}, renamed) != key
    renamed[0].rename(files[0])
    assert cache_key({"size": 1}, files) == key
    files[0].write_bytes(b"c")
    assert cache_key({"size": 1}, files) != key


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert resolve_cache_dir(None) == tmp_path / "cwfed" / "decoded"
    monkeypatch.setenv("CWFED_CACHE", str(tmp_path / "own"))
    assert resolve_cache_dir(None) == tmp_path / "own"
    assert resolve_cache_dir(tmp_path / "given") == tmp_path / "given"


@pytest.mark.parametrize("name", ["entry", "images.npy", "labels.npy", "meta.json"])
def test_a_linked_entry_is_not_used_and_made_again(tmp_path, samples, name):
    folder, victim = tmp_path / "cache", tmp_path / "victim"
    made = in_memory(samples, class_names=NAMES, name="small")
    write(folder, samples)
    entry = folder / KEY
    linked = entry if name == "entry" else entry / name
    linked.rename(victim)
    linked.symlink_to(victim)
    before = {path: path.read_bytes() for path in (victim, *victim.glob("*")) if path.is_file()}
    assert read_entry(folder, KEY) is None
    assert_same(write(folder, samples), made)
    assert not any(path.is_symlink() for path in (entry, *entry.iterdir()))
    assert_same(read_entry(folder, KEY), made)
    assert {path: path.read_bytes() for path in before} == before
    assert [path.name for path in folder.iterdir()] == [KEY]


def test_a_dangling_link_in_the_place_of_an_entry_is_replaced(tmp_path, samples):
    (tmp_path / KEY).symlink_to(tmp_path / "nowhere")
    write(tmp_path, samples)
    assert read_entry(tmp_path, KEY) is not None
    assert not (tmp_path / KEY).is_symlink()
