"""Files that could be read without end, or unpack or unfold to more than there is."""

import os
import pickle
import stat
import tracemalloc

import numpy as np
import pytest
import yaml

from cwfed.cli import main
from cwfed.records import reading
from cwfed.records.reading import check_yaml, read_arrays, read_text
from cwfed.records.run import Run

BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGED = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize("text", [BOMB, MERGED, "- x\n" * 20_001])
def test_a_text_of_too_many_values(text):
    with pytest.raises(ValueError, match="expected at most 20,000 values"):
        check_yaml(text)


@pytest.mark.parametrize("text", ["&a [*a]", "x: &a {y: [*a]}", "&a {<<: *a}"])
def test_a_text_that_refers_to_itself(text):
    with pytest.raises(ValueError, match="refers to itself"):
        check_yaml(text)


def test_anchors_are_fine():
    text = "a: &a {lr: 1, b: A&B}\nb: [*a, *a]\nc: {<<: *a, x: 2}\n"
    check_yaml(text)
    assert yaml.safe_load(text)["c"] == {"lr": 1, "b": "A&B", "x": 2}


@pytest.mark.parametrize("text", [BOMB, "model: " + "[" * 100_000, "data: &a [*a]"])
@pytest.mark.parametrize("option", ["--config", "--algorithm", "--model"])
def test_bombs_are_one_line_wherever_a_file_is_read(tmp_path, capsys, option, text):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    assert main(["fit", "--config", "quickstart", option, str(path)]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("cwfed fit: error: ")
    assert len(error.splitlines()) == 1


def make_device(path):
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are files on POSIX only")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "expected a regular file, got a device"),
        (make_device, "expected a regular file, got a device"),
        (lambda path: os.symlink("/dev/zero", path), "expected no link, got one to /dev/zero"),
    ],
    ids=["pipe", "device", "link"],
)
@pytest.mark.parametrize("name", ["config.yaml", "rounds.jsonl"])
def test_a_run_folder_of_pipes_and_devices(tmp_path, make, message, name):
    (tmp_path / "config.yaml").write_text("algorithm: {name: x}")
    (tmp_path / name).unlink(missing_ok=True)
    make(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        Run.load(tmp_path)


def test_a_huge_file_is_not_read(tmp_path):
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="expected at most 67,108,864 bytes"):
        read_text(tmp_path / "a")


def test_arrays_that_unpack_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_ARRAYS", 1 << 20)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(1 << 22))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"a\.npz: .* unpacks to 33,554,\d+ bytes"):
            read_arrays(tmp_path / "a.npz")
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()


class Trap:
    def __reduce__(self):
        return open, ("sprung", "w")


def test_arrays_of_objects_run_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", x=np.array([Trap()], dtype=object))
    with pytest.raises(ValueError, match=r"a\.npz: expected a snapshot"):
        read_arrays(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match=r"b\.npz: expected a snapshot"):
        read_arrays(tmp_path / "b.npz")
    assert not (tmp_path / "sprung").exists()
