"""Which run folders a page is about."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cwfed.federated.folder import CHECKPOINTS, CONFIG, PARTITION, ROUNDS
from cwfed.report.run import Run
from cwfed.results import SNAPSHOTS


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

    A run that is damaged is an error where it was named and is passed over where it was only
    come across.

    Raises:
        ValueError: A path is no folder or holds no run, or a run that was named is damaged.
    """
    found = Found()
    seen: set[Path] = set()
    for path in paths:
        if not path.is_dir():
            raise ValueError(f"RUN: expected a run folder or a folder of runs, got {path}")
        if (path / CONFIG).is_file():
            if path.resolve() not in seen:
                found.runs.append(_read(path))
                seen.add(path.resolve())
        else:
            _search(path, found, seen)
    return found


def _search(path: Path, found: Found, seen: set[Path]) -> None:
    folders = [config.parent for config in sorted(path.rglob(CONFIG)) if config.is_file()]
    folders = [folder for folder in folders if is_run(folder)]
    if not folders:
        raise ValueError(f"RUN: expected a run folder or a folder of runs, got {path} without any")
    readable = 0
    for folder in folders:
        try:
            run = _read(folder)
        except ValueError as error:
            found.skipped.append(f"Left out, since it cannot be read: {error}")
            continue
        readable += 1
        if folder.resolve() not in seen:
            found.runs.append(run)
            seen.add(folder.resolve())
    if not readable:
        raise ValueError(f"RUN: no run below {path} can be read: {found.skipped[-1]}")


def is_run(folder: Path) -> bool:
    """Return whether a folder with a configuration is a run and not, say, part of one.

    A configuration alone may be anybody's; a run has rounds, a partition or checkpoints as well.
    """
    beside = (ROUNDS, PARTITION, CHECKPOINTS, SNAPSHOTS)
    return any((folder / name).exists() for name in beside)


def _read(folder: Path) -> Run:
    run = Run.load(folder)
    try:
        check_run(run)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder}: expected a run's files, got damaged ones: {error}") from error
    return run


def check_run(run: Run) -> None:
    """Touch whatever a page reads of a run's configuration and rounds.

    Raises:
        ValueError: A field is missing or of another kind.
    """
    for name in ("data", "partition", "algorithm", "client", "trainer"):
        if not isinstance(run.config.get(name), dict):
            raise ValueError(f"{run.path}: {name}: expected a mapping in its configuration")
    int(run.config["seed"]), int(run.config["rounds"])
    str(run.config["data"]["class_path"]), str(run.config["partition"]["class_path"])
    try:
        for line in run.lines:
            sum(line["bytes"]["up"]), sum(line["bytes"]["down"]), sum(line["seconds"].values())
            line["mean_R"], line["train_loss"], len(line["participants"])
            [(int(c), str(why)) for c, why in (line.get("excluded") or {}).items()]
            for metric in ("received", "post_local"):
                if line[metric]:
                    line[metric]["accuracy"], line[metric]["loss"], line[metric]["fairness"]
                    sum(line[metric]["correct"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{run.path / ROUNDS}: expected whole rounds, got a damaged line {line['round'] + 1}"
        ) from error
