"""Checking a number: run a line of the ledger again and compare."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from cwfed.config.files import UsageError, user_path
from cwfed.config.parser import named_class
from cwfed.processes.children import explain
from cwfed.records.identity import filled, identities
from cwfed.records.plain_yaml import dump_yaml
from cwfed.records.round_lines import METRICS
from cwfed.sweeps.fields import choose
from cwfed.sweeps.finished import cpu_name, describe_run
from cwfed.sweeps.jobs import Resolver, expand
from cwfed.sweeps.launch import cold
from cwfed.sweeps.profiles import PROFILES
from cwfed.sweeps.suite import Suite

_LISTED = 6
_ELSEWHERE = ("system", "cores", "workers")
"""Facts of the hardware that do not change a bit."""

PLACES = ("data", "partition")
"""Parts of a configuration that may read a file, of which a line does not keep the place."""

_ROUNDING = 1e-6


@dataclass
class Check:
    """Settings of a check.

    Attributes:
        rounds: Run only so many.
        tolerance: Percentage points that another kind of machine may differ by, in any round.
        data_dir: Where the data are.
        paths: By data or partition: the file or folder that it reads, None for those without.
    """

    rounds: int | None = None
    tolerance: float = 1.5
    data_dir: Path | None = None
    paths: Mapping[str, str | None] = field(default_factory=dict)


def find_line(
    suite: Suite,
    target: str,
    lines: Sequence[Mapping[str, Any]],
    seed: int | None,
    rounds: int | None,
    profile: str | None = None,
) -> Mapping[str, Any]:
    """Return the one line that a key, or ``TABLE/ROW/COLUMN``, names.

    Args:
        suite: The tables that the command knows.
        target: A key or its beginning, or a cell.
        lines: The ledger.
        seed: Only lines of this seed.
        rounds: Only lines of at least so many rounds.
        profile: Only the cell as this profile resolves it; None takes all.

    Raises:
        UsageError: None or several match.
    """
    if profile is not None:
        choose(profile, [*PROFILES], "--profile")
    if "/" in target:
        cells = _cells(suite, target, [profile] if profile else [*PROFILES])
        found = [line for line in lines if line["cell"] in cells]
    else:
        # A report of an earlier version prints the keys of its time.
        found = [
            line
            for line in lines
            if any(key.startswith(target) for key in identities(line["config"]))
        ]
    found = [line for line in found if seed in (None, line["seed"])]
    found = [line for line in found if line["rounds"] >= (rounds or 0)]
    if len(found) != 1:
        raise UsageError(
            f"verify: expected a key or TABLE/ROW/COLUMN of one run in the ledger, got {target!r}, "
            f"which matches {_listed(found)}"
        )
    return found[0]


def _listed(found: Sequence[Mapping[str, Any]]) -> str:
    listed = [f"{x['key'][:12]} ({x['rounds']} rounds, seed {x['seed']})" for x in found[:_LISTED]]
    more = [f"{len(found) - _LISTED} more"] if len(found) > _LISTED else []
    return ", ".join([*listed, *more]) or "none"


def verify(line: Mapping[str, Any], check: Check) -> list[str]:
    """Run a line of the ledger again; return what does not match, nothing if all does.

    Raises:
        UsageError: The run cannot be made here.
    """
    mismatches = inconsistencies(line)
    if mismatches:
        return mismatches
    rounds = min(check.rounds or line["rounds"], line["rounds"])
    options = _places(line, check.paths)
    options += [f"--data_dir={check.data_dir}"] if check.data_dir else []
    with tempfile.TemporaryDirectory(prefix="verify-") as folder:
        path = Path(folder) / "config.yaml"
        config = {**filled(line["config"]), "rounds": rounds}
        path.write_text(dump_yaml(config), encoding="utf-8")
        if check.paths.get("partition"):
            # Another file than that of the line would cost a whole run before it shows.
            other = _other_partition(line, path, options, check.data_dir)
            if other:
                return [other]
        return compare(line, _rerun(line, path, options), check.tolerance)


def inconsistencies(line: Mapping[str, Any]) -> list[str]:
    """Return where a line contradicts itself: its hash, or its figures and its curves."""
    found = []
    known = identities(line["config"])
    if line["config_hash"] not in known:
        found.append(
            f"config: expected one with the hash {line['config_hash'][:12]}, got {known[0][:12]}"
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
    other = _compare_partitions(old["partition_hash"], new["partition_hash"])
    found = [other] if other else []
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


def _compare_partitions(old: str, new: str) -> str | None:
    return None if old == new else f"partition: expected {old[:12]}, got {new[:12]}"


def _other_partition(
    line: Mapping[str, Any], path: Path, options: Sequence[str], data_dir: Path | None
) -> str | None:
    _, experiment = Resolver().resolve(["--config", str(path), *options])
    _, manifest = experiment.divide(data_dir)
    return _compare_partitions(line["partition_hash"], manifest.hash)


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


def _cells(suite: Suite, target: str, profiles: Sequence[str]) -> set[str]:
    parts = target.rsplit("/", 2)
    if len(parts) != 3:
        raise UsageError(f"verify: expected TABLE/ROW/COLUMN, got {target!r}")
    name, row, column = parts
    (table,) = suite.load_tables([name])
    if row not in table.rows or column not in table.columns:
        known = ", ".join(f"{r}/{c}" for r in table.rows for c in table.columns)
        raise UsageError(f"verify: expected one of {known} in {name}, got {row}/{column}")
    resolver, only = Resolver(), [f"{row}/{column}"]
    return {
        job.cell
        for profile in profiles
        for job in expand(table, PROFILES[profile], resolver, seeds=[0], only=only)
    }


def _places(line: Mapping[str, Any], paths: Mapping[str, str | None]) -> list[str]:
    """Return the options that say where what the run reads is found; a line keeps only hashes.

    Raises:
        UsageError: A place is missing, or given to what reads no file.
    """
    options = []
    for name in PLACES:
        chosen, path = str(line["config"].get(name, {}).get("class_path")), paths.get(name)
        if not reads_file(chosen):
            if path:
                raise UsageError(f"--{name}.path: expected none with {chosen}, got {path}")
        elif path is None:
            raise UsageError(
                f"--{name}.path: expected the path that {chosen} reads, got nothing; the ledger "
                f"does not keep places, only the partition's hash {line['partition_hash'][:12]}"
            )
        else:
            options.append(f"--{name}.path={user_path(path, f'--{name}.path').absolute()}")
    return options


def reads_file(class_path: str) -> bool:
    """Return whether a data source or partitioner has to be told a path."""
    try:
        kind = named_class(class_path)
    except UsageError:
        return False  # the run itself says best what is wrong with it
    wanted = signature(kind).parameters.get("path")
    return wanted is not None and wanted.default is Parameter.empty


def _rerun(line: Mapping[str, Any], path: Path, places: Sequence[str]) -> dict[str, Any]:
    log, run_dir = path.with_name("log"), path.with_name("run")
    # The engine of the line, where this machine has it: it may decide the last bits.
    hardware = dict(line["hardware"])
    if "." in str(hardware.get("engine")):
        # One of another module is in the configuration, with its arguments.
        del hardware["engine"]
    options = [
        f"--trainer.{name}={hardware[name]}"
        for name in ("engine", "threads", "eval_batch_size", "memory_format")
        if hardware.get("accelerator") == "cpu" and hardware.get(name) is not None
    ]
    arguments = ["fit", "--config", str(path), "--run_dir", str(run_dir), *options, *places]
    process = cold(arguments, log, {})
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.ask()
        process.wait()
        raise
    if code:
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise UsageError(f"verify: the run failed with {explain(code)}: {' '.join(said)}")
    return describe_run(run_dir, {"cpu": cpu_name()})
