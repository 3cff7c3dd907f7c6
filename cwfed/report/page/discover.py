"""Finds the run folders of a page."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cwfed.messages.checks import require_integer, require_mapping, require_text
from cwfed.records.names import CHECKPOINTS, CONFIG, PARTITION, ROUNDS, SNAPSHOTS
from cwfed.records.reading import reading
from cwfed.records.run import Run
from cwfed.report.page.payload import require_shown

_LONGEST = 1000
_LEFT_OUT = "Left out, since it cannot be read: "


@dataclass(frozen=True)
class Found:
    """Run folders that were found.

    Attributes:
        runs: The runs, each once, in the order of their paths within each path given.
        skipped: What was passed over, a sentence each.
    """

    runs: list[Run] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def find_runs(paths: Sequence[Path]) -> Found:
    """Read run folders, and those anywhere below other folders.

    A run that is damaged is passed over.

    Raises:
        ValueError: A path is no folder or holds no run, or all runs are damaged.
    """
    found = Found()
    seen: set[Path] = set()
    for path in paths:
        if not path.is_dir():
            raise ValueError(f"RUN: expected a run folder or a folder of runs, got {path}")
        for folder in [path] if (path / CONFIG).is_file() else _below(path):
            if folder.resolve() not in seen:
                seen.add(folder.resolve())
                _take(folder, found)
    if not found.runs:
        raise ValueError(f"RUN: no run can be read: {found.skipped[0].removeprefix(_LEFT_OUT)}")
    return found


def _take(folder: Path, found: Found) -> None:
    try:
        found.runs.append(_read(folder))
    except ValueError as error:
        found.skipped.append(f"{_LEFT_OUT}{error}")


def _below(path: Path) -> list[Path]:
    folders = [config.parent for config in sorted(path.rglob(CONFIG)) if config.is_file()]
    folders = [folder for folder in folders if is_run(folder)]
    if not folders:
        raise ValueError(f"RUN: expected a run folder or a folder of runs, got {path} without any")
    return folders


def is_run(folder: Path) -> bool:
    """Return whether a folder with a configuration is a run and not, say, part of one.

    A configuration alone may be anybody's; a run has rounds, a partition or checkpoints as well.
    """
    beside = (ROUNDS, PARTITION, CHECKPOINTS, SNAPSHOTS)
    return any((folder / name).exists() for name in beside)


def _read(folder: Path) -> Run:
    run = Run.load(folder)
    check_config(run)
    require_shown(run)
    return run


def check_config(run: Run) -> None:
    """Check what a page reads of a run's configuration.

    Raises:
        ValueError: A field is missing or of another kind; the message names the file.
    """
    with reading(run.path / CONFIG, "a run's configuration"):
        config = run.config
        for name in ("data", "partition", "algorithm", "client", "trainer"):
            require_mapping(config.get(name), name)
        for name, least in (("seed", 0), ("rounds", 0)):
            require_integer(name, config.get(name), least)
        for name in ("data", "partition"):
            require_text(config[name].get("class_path"), f"{name}.class_path", _LONGEST)
        require_text(config["algorithm"].get("name"), "algorithm.name", _LONGEST)
        last = run.lines[-1]["round"] if run.lines else 0
        if last > config["rounds"]:
            raise ValueError(
                f"rounds: expected at least the {last} of {ROUNDS}, got {config['rounds']}"
            )
