"""What runs in a folder from elsewhere: what a class_path names, and nothing else."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import cwfed
from cwfed.processes.own_modules import finder_at_work, forget_current_folder

ROOT = Path(__file__).parents[2]

SMALL = [
    *("--data", "SyntheticImages", "--data.image_size", "16", "--data.samples_per_class", "10"),
    *("--partition.num_clients", "3", "--model.hidden_features", "8"),
]
# Two threads each: such workers are spawned, not forked.
SPAWNED = ["--trainer.engine", "parallel", "--trainer.workers", "1", "--trainer.threads", "2"]

RECORDER = """
import os, sys

class Recorder:
    def find_spec(self, name, path=None, target=None):
        if path is None:
            with open(os.environ["RECORD"], "a") as file:
                file.write(name + "\\n")

sys.meta_path.append(Recorder())
"""
SPRUNG = "import os\nopen(os.path.join({folder!r}, __name__), 'w').close()\n"
COMMAND = "import sys\nfrom cwfed.cli import main\nif __name__ == '__main__':\n    sys.exit(main())"
RECORDED = [
    ["fit", "--resume", ".", "--rounds", "2"],
    ["report", "."],
    ["plot", "curves", "."],
    ["partition", "--config", "quickstart"],
]


@pytest.fixture(scope="session")
def console_script(tmp_path_factory):
    """The command as an installation makes it: its folder comes first on Python's path."""
    path = tmp_path_factory.mktemp("bin") / "cwfed"
    path.write_text(COMMAND)
    return path


def environment(**changes):
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("CWFED_", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **changes}


def run(*command, cwd, code=0, **changes):
    process = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd, env=environment(**changes), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert process.returncode == code, process.stderr
    return process


@pytest.fixture(scope="module")
def theirs(tmp_path_factory, console_script):
    """A run from elsewhere, unfinished."""
    folder = tmp_path_factory.mktemp("theirs") / "run"
    logged = ["--logger", "[tensorboard, wandb]", "--wandb.mode", "offline", "--rounds", "1"]
    fit = ["fit", "--config", "quickstart", *SMALL, *SPAWNED, *logged, "--run_dir", folder]
    run(console_script, *fit, cwd=folder.parent)
    return folder


@pytest.fixture(scope="module")
def optional(theirs, tmp_path_factory, console_script):
    """All modules that the commands and their workers try to import and do without."""
    recorder, record = tmp_path_factory.mktemp("recorder"), tmp_path_factory.mktemp("names") / "all"
    (recorder / "sitecustomize.py").write_text(RECORDER)
    copy = tmp_path_factory.mktemp("recorded") / "run"
    shutil.copytree(theirs, copy, symlinks=True)
    path = os.pathsep.join([str(recorder), str(ROOT)])
    for command in RECORDED:
        run(console_script, *command, cwd=copy, RECORD=str(record), PYTHONPATH=path)
    names = {name for name in record.read_text().split() if "." not in name}
    return sorted(name for name in names if find_spec(name) is None)


@pytest.fixture
def trapped(theirs, optional, tmp_path):
    """The run, with a module of the name of each of them; and the folder that tells who ran."""
    folder, sprung = tmp_path / "run", tmp_path / "sprung"
    shutil.copytree(theirs, folder, symlinks=True)
    sprung.mkdir()
    for name in optional:
        (folder / f"{name}.py").write_text(SPRUNG.format(folder=str(sprung)))
    return folder, sprung


def sprung_by(trapped, *command, **changes):
    folder, sprung = trapped
    run(*command, cwd=folder, **changes)
    return sorted(os.listdir(sprung))


def test_the_hook_sees_what_libraries_try(optional):
    assert len(optional) > 20


@pytest.mark.parametrize("command", RECORDED[:3], ids=lambda command: " ".join(command[:2]))
def test_no_library_finds_an_optional_module_in_the_current_folder(
    trapped, console_script, command
):
    assert sprung_by(trapped, console_script, *command) == []


def test_nor_where_python_itself_puts_that_folder_on_its_path(trapped, console_script):
    assert sprung_by(trapped, "-m", "cwfed", "report", ".") == []
    assert sprung_by(trapped, "-m", "benchmarks", "status", "--runs", ".", "study_digits") == []
    # An empty entry counts from the start of Python; what runs before the command cannot be helped.
    path, script = os.pathsep.join(["", str(ROOT)]), trapped[0].parent / "script.py"
    script.write_text("import cwfed.cli")
    before = sprung_by(trapped, script, PYTHONPATH=path)
    assert not {"ruamel", "dill", "pynvml"} & set(before)
    assert sprung_by(trapped, console_script, "report", ".", PYTHONPATH=path) == before


def test_nor_do_runs_that_tables_and_python_start(trapped, console_script):
    folder, _ = trapped
    rows = {"local": {"metric": "post_local"}}
    columns = {"tiny": {"config": "quickstart", "options": {"partition.num_clients": 3}}}
    table = {"title": "T", "columns": columns, "rows": rows}
    (folder / "t.yaml").write_text(yaml.safe_dump(table))
    for profile in ("smoke", "cpu"):  # processes that are forked from a warm one, and cold ones
        tables = ["run", "t.yaml", "--profile", profile, "--runs", "r", "--rounds", "1"]
        found = sprung_by(trapped, "-m", "benchmarks", *tables, "--ledger", "ledger")
        assert found == []
    script = folder.parent / "script.py"
    script.write_text("import cwfed\nif __name__ == '__main__': cwfed.resume('.', rounds=2)")
    assert sprung_by(trapped, script) == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no safe path")
def test_workers_do_not_find_pythons_own_modules_there(theirs, tmp_path, console_script):
    folder, sprung = tmp_path / "run", tmp_path / "sprung"
    shutil.copytree(theirs, folder, symlinks=True)
    sprung.mkdir()
    for name in ("pickle", "threading", "signal", "socket", "struct", "tempfile", "copyreg"):
        (folder / f"{name}.py").write_text(SPRUNG.format(folder=str(sprung)))
    found = sprung_by((folder, sprung), console_script, "fit", "--resume", ".", "--rounds", "2")
    assert found == []


MINE = """
import neighbour
from package.inside import Marker

from cwfed.aggregators import FedAvg
from cwfed.objectives import ObjectiveTerm

class Mine(FedAvg):
    def mixing(self, *arguments):
        from lazy_neighbour import said
        said()
        return super().mixing(*arguments)

class Term(ObjectiveTerm, Marker):
    weight = 1.0

    def value(self, step, client):
        import_module = __import__("importlib").import_module
        return 0.0 * step.logits_BK.sum() * import_module("lazy_too").ONE
"""


@pytest.fixture
def mine(tmp_path):
    """A method of one's own in the current folder, which imports its neighbours."""
    folder = tmp_path / "mine"
    (folder / "package").mkdir(parents=True)
    (folder / "mine.py").write_text(MINE)
    (folder / "neighbour.py").write_text("import neighbours_neighbour")
    (folder / "neighbours_neighbour.py").write_text("")
    (folder / "package" / "inside.py").write_text("class Marker: pass")
    (folder / "lazy_neighbour.py").write_text("def said(): open('mixed', 'w').close()")
    (folder / "lazy_too.py").write_text("ONE = 1.0")
    method = {
        "aggregator": {"class_path": "mine.Mine"},
        "objectives": [{"class_path": "mine.Term"}],
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump({"algorithm": {"name": "mine", **method}}))
    return folder


FIT = ["fit", "--config", "quickstart", "--algorithm", "mine.yaml", *SMALL, "--rounds", "1"]


@pytest.mark.parametrize("how", ["forked", "spawned, -m", "safe path, trusted"])
def test_own_modules_and_their_neighbours_are_found(mine, console_script, how):
    engine = SPAWNED if "spawned" in how else [*SPAWNED[:-1], "1"]
    start = ["-m", "cwfed"] if "-m" in how else [console_script]
    changes = {"PYTHONSAFEPATH": "1"} if "safe" in how else {}
    trusted = ["--trusted_modules", ".", "mine"] if "trusted" in how else []
    run(*start, *FIT, *engine, "--run_dir", "r", *trusted, cwd=mine, **changes)
    assert (mine / "mixed").exists()
    (mine / "mixed").unlink()
    run(*start, "fit", "--resume", "r", "--rounds", "2", *trusted, cwd=mine, **changes)
    assert (mine / "mixed").exists()


def test_tables_find_own_methods(mine):
    table = {
        "title": "T",
        "columns": {"tiny": {"config": "quickstart", "options": {"partition.num_clients": 3}}},
        "rows": {"mine": {"metric": "received", "algorithm": "mine.yaml"}},
    }
    (mine / "t.yaml").write_text(yaml.safe_dump(table))
    for profile in ("smoke", "cpu"):
        options = ["--profile", profile, "--runs", "r", "--rounds", "1", "--ledger", profile]
        run("-m", "benchmarks", "run", "t.yaml", *options, cwd=mine)
        assert (mine / "mixed").exists()
        (mine / "mixed").unlink()
    run("-m", "benchmarks", "verify", "t.yaml/mine/tiny", "--ledger", "cpu", cwd=mine)


def test_python_finds_own_classes_where_they_are_named(mine, tmp_path):
    script = tmp_path / "elsewhere" / "script.py"
    script.parent.mkdir()
    script.write_text(
        "import sys, cwfed\n"
        "if __name__ == '__main__':\n"
        "    before = list(sys.path), list(sys.meta_path)\n"
        "    options = dict(zip([o[2:] for o in sys.argv[1::2]], sys.argv[2::2]))\n"
        "    cwfed.fit('quickstart', algorithm='mine.yaml', run_dir='r', **options)\n"
        "    cwfed.resume('r', rounds=2)\n"
        "    assert (sys.path, sys.meta_path) == before\n"
        "    try:\n        import another\n"
        "    except ImportError: print('not found')\n"
    )
    (mine / "another.py").write_text("")
    assert "not found" in run(script, *SMALL, *SPAWNED, "--rounds", "1", cwd=mine).stdout
    assert (mine / "mixed").exists()


def test_an_untrusted_class_in_a_ledger_is_not_imported(tmp_path, monkeypatch):
    from jsonargparse import _common

    from cwfed.config.trust import restrict_imports
    from cwfed.sweeps.verify import reads_file

    monkeypatch.setattr(_common, "parsing_settings", dict(_common.parsing_settings))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ledger_trap.py").write_text("class Source:\n    def __init__(self, path): pass")
    restrict_imports([])
    assert not reads_file("ledger_trap.Source")
    assert "ledger_trap" not in sys.modules
    assert reads_file("cwfed.data.partitioners.FromManifest")
    assert not reads_file("cwfed.data.partitioners.Dirichlet")


def test_what_is_taken_from_the_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    here = str(tmp_path)
    for first in ("", here):
        monkeypatch.setattr(sys, "path", [first, "/a", here])
        forget_current_folder(first=False)
        assert sys.path == [first, "/a", here]
        forget_current_folder()
        assert sys.path == ["/a", here]  # an installation may have put it there
    for asked, left in ((here, 3), (".", 3), (f"{os.pathsep}/b", 1), ("/b", 2), ("", 2)):
        monkeypatch.setenv("PYTHONPATH", asked)
        monkeypatch.setattr(sys, "path", [here, "/a", here])
        forget_current_folder()
        assert len(sys.path) == left, asked


def test_a_folder_that_is_gone_is_not_searched(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ValueError, match="--resume: expected a run folder"):
        cwfed.resume("nowhere")
    assert finder_at_work() is None
