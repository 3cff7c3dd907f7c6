"""Arrays on disk: NumPy's own files, and a full disk that is an error."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from cwfed.data.npy import write_npy

FULL = """
import sys
from pathlib import Path
import numpy as np
from cwfed.data.npy import write_npy
values = np.ones((4000, 1000), dtype=np.uint8)
try:
    write_npy(Path(sys.argv[1]) / "a.npy", values, np.arange(4000))
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.parametrize("fortran", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_a_file_is_that_of_numpy_to_the_byte(tmp_path, dtype, fortran):
    values = np.random.default_rng(0).integers(0, 9, (5000, 3, 2)).astype(dtype)
    order = np.random.default_rng(1).permutation(5000)
    given = np.asfortranarray(values) if fortran else values
    write_npy(tmp_path / "ours.npy", given, order)
    np.save(tmp_path / "theirs.npy", values[order])
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()


def test_no_pickle_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"a\.npy: expected plain values, got the type object"):
        write_npy(tmp_path / "a.npy", np.array([{}], dtype=object), np.arange(1))
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_is_an_error_and_ends_nothing(tmp_path):
    script = tmp_path / "full.py"
    script.write_text(FULL)
    mount = f"mount -t tmpfs -o size=1m none {tmp_path}/disk"
    (tmp_path / "disk").mkdir()
    inside = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if not shutil.which("unshare") or subprocess.run([*inside, mount], check=False).returncode:
        pytest.skip("needs to mount a small disk of its own")
    command = f"{mount} && {sys.executable} {script} {tmp_path}/disk"
    done = subprocess.run([*inside, command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "No space left on device\n"), done.stderr
