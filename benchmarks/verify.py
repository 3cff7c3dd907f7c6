"""Checking a number: run a line of the ledger again and compare."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.finished import cpu_name, describe_run
from benchmarks.jobs import Resolver
from benchmarks.launch import Cold, explain
from benchmarks.profiles import PROFILES
from benchmarks.report import cells_of
from benchmarks.tables import load_tables
from cwfed.cli.files import UsageError
from cwfed.federated.folder import config_hash
from cwfed.results import METRICS

_ELSEWHERE = ("system", "cores", "workers")
"""Facts of the hardware that do not change a bit."""

_ROUNDING = 1e-6


@dataclass
class Check:
    """How a run is checked.

    Attributes:
        rounds: Run only so many.
        tolerance: Percentage points that another kind of machine may differ by, in any round.
        data_dir: Where the data are.
    """

    rounds: int | None = None
    tolerance: float = 1.5
    data_dir: Path | None = None


def find_line(
    target: str, lines: Sequence[Mapping[str, Any]], seed: int | None, rounds: int | None
) -> Mapping[str, Any]:
    """Return the one line that a key, or ``TABLE/ROW/COLUMN``, names.

    Args:
        target: A key or its beginning, or a cell.
        lines: The ledger.
        seed: Only lines of this seed.
        rounds: Only lines of at least so many rounds.

    Raises:
        UsageError: None or several match.
    """
    if "/" in target:
        cells = _cells(target)
        found = [line for line in lines if line["cell"] in cells]
    else:
        found = [line for line in lines if line["key"].startswith(target)]
    found = [line for line in found if seed in (None, line["seed"])]
    found = [line for line in found if line["rounds"] >= (rounds or 0)]
    if len(found) != 1:
        what = ", ".join(f"{x['key'][:12]} ({x['rounds']} rounds, seed {x['seed']})" for x in found)
        raise UsageError(
            f"verify: expected a key or TABLE/ROW/COLUMN of one run in the ledger, got {target!r}, "
            f"which matches {what or 'none'}"
        )
    return found[0]


def verify(line: Mapping[str, Any], check: Check) -> list[str]:
    """Run a line of the ledger again; return what does not match, nothing if all does.

    Raises:
        UsageError: The run cannot be made here.
    """
    mismatches = inconsistencies(line)
    if mismatches:
        return mismatches
    rounds = min(check.rounds or line["rounds"], line["rounds"])
    with tempfile.TemporaryDirectory(prefix="verify-") as folder:
        again = _rerun(line, rounds, Path(folder), check.data_dir)
    return compare(line, again, check.tolerance)


def inconsistencies(line: Mapping[str, Any]) -> list[str]:
    """Return where a line contradicts itself: its hash, or its figures and its curves."""
    found = []
    if config_hash(line["config"]) != line["config_hash"]:
        found.append(
            f"config: expected one with the hash {line['config_hash'][:12]}, got "
            f"{config_hash(line['config'])[:12]}"
        )
    for metric in METRICS:
        curve = line["curves"][metric]
        scored = [value for value in curve[1:] if value is not None] or [curve[0]]
        for choice, expected in (("best", max(scored)), ("last", scored[-1])):
            quoted = line["metrics"][metric][choice]
            if quoted and abs(quoted["accuracy"] - expected) > _ROUNDING:
                found.append(
                    f"{metric}.{choice}: expected {expected:.6f}, as its curve has it, got "
                    f"{quoted['accuracy']:.6f}"
                )
    return found


def compare(old: Mapping[str, Any], new: Mapping[str, Any], tolerance: float) -> list[str]:
    """Return where a rerun differs from a line: to the bit on the same kind of machine.

    Args:
        old: The ledger's line.
        new: The rerun, of as many rounds or fewer.
        tolerance: Percentage points allowed on another kind of machine.
    """
    found = []
    if new["partition_hash"] != old["partition_hash"]:
        found.append(
            f"partition: expected {old['partition_hash'][:12]}, got {new['partition_hash'][:12]}"
        )
    allowed = 0.0 if same_machine(old, new) else tolerance / 100
    for metric in METRICS:
        found += _compare_curves(metric, old["curves"][metric], new["curves"][metric], allowed)
    if not allowed and new["rounds"] == old["rounds"]:
        for name in (*METRICS, "mean_R", "bytes"):
            if new["metrics"][name] != old["metrics"].get(name):
                found.append(
                    f"{name}: expected {old['metrics'].get(name)}, got {new['metrics'][name]}"
                )
    return found


def same_machine(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether two runs were made by the same versions on the same kind of machine."""
    kinds = [
        {name: value for name, value in line["hardware"].items() if name not in _ELSEWHERE}
        for line in (old, new)
    ]
    return kinds[0] == kinds[1] and old["versions"] == new["versions"]


def _compare_curves(
    metric: str, old: Sequence[float | None], new: Sequence[float | None], allowed: float
) -> list[str]:
    for number, (a, b) in enumerate(zip(old, new, strict=False)):
        # A shorter run scores its last round in any case.
        if a is None or b is None:
            continue
        if abs(a - b) > allowed:
            return [f"{metric}, round {number}: expected {a:.6f}, got {b:.6f}"]
    return []


def _cells(target: str) -> set[str]:
    parts = target.rsplit("/", 2)
    if len(parts) != 3:
        raise UsageError(f"verify: expected TABLE/ROW/COLUMN, got {target!r}")
    name, row, column = parts
    (table,) = load_tables([name])
    resolver = Resolver()
    found = set()
    for profile in (PROFILES["paper"], PROFILES["smoke"]):
        cells = cells_of(table, profile, resolver)
        if (row, column) not in cells:
            known = ", ".join("/".join(each) for each in cells)
            raise UsageError(f"verify: expected one of {known} in {name}, got {row}/{column}")
        found.add(cells[row, column])
    return found


def _rerun(
    line: Mapping[str, Any], rounds: int, folder: Path, data_dir: Path | None
) -> dict[str, Any]:
    path, log = folder / "config.yaml", folder / "log"
    config = {**line["config"], "rounds": rounds}
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    # The engine of the line, where this machine has it: it may decide the last bits.
    hardware = line["hardware"]
    options = [
        f"--trainer.{name}={hardware[name]}"
        for name in ("engine", "threads", "eval_batch_size", "memory_format")
        if hardware.get("accelerator") == "cpu" and hardware.get(name) is not None
    ]
    options += [f"--data_dir={data_dir}"] if data_dir else []
    arguments = ["fit", "--config", str(path), "--run_dir", str(folder / "run"), *options]
    process = Cold(arguments, log, {})
    try:
        code = process.process.wait()
    except KeyboardInterrupt:
        process.stop()
        process.process.wait()
        raise
    if code:
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise UsageError(f"verify: the run failed with {explain(code)}: {' '.join(said)}")
    return describe_run(folder / "run", {"cpu": cpu_name()})
