"""One command, with one hard deadline, for a GPU that is lent for a few minutes.

``python -m benchmarks.device --budget 8m --data_dir DIR -o OUT`` runs three parts, each in
processes of its own, so that none takes another one down and all memory is free for the next:

1. equality: do all engines give the same numbers on this device (`benchmarks.device.equality`)?
2. speed: steps a second, beside a plain loop and the device's peak (`benchmarks.device.speed`).
3. cells: whole runs of methods on configurations (`benchmarks.device.cells`).

OUT must be new or empty; it gets equality.md, speed.md, speed.jsonl, cells.md, cells.tar.gz and
log.txt. The budget counts from the start of the process. Further options go to every
``cwfed fit``. The exit code is 1 if an engine's numbers differ or a part or a cell fails.
Nothing but Python's own library is needed until it is known what can be imported.
"""

import argparse
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from cwfed.messages.texts import shown
from cwfed.processes.children import Child, end, explain, importable, python, start
from cwfed.sweeps.deadline import Deadline, duration

NEEDED = ("torch", "lightning", "torchmetrics", "torchvision", "numpy", "yaml", "rich")
NEEDED_BY_CELLS = ("jsonargparse", "sklearn", "pyarrow", "PIL")
OPTIONAL = ("matplotlib", "tensorboard", "wandb")
_DISTRIBUTIONS = {"yaml": "pyyaml", "sklearn": "scikit-learn", "PIL": "pillow"}
PARTS = ("equality", "speed", "cells")

_ENDING = 2.0
"""Seconds for ending a part that does not end by itself."""


@dataclass(frozen=True)
class Part:
    """A process of the command.

    Attributes:
        name: For people.
        weight: Share of the time that is left, against the parts that follow.
        arguments: Module and its arguments.
    """

    name: str
    weight: float
    arguments: tuple[str, ...]


class Log:
    """Standard output that is kept in a file as well."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file
        self.lock = threading.Lock()

    def say(self, text: str) -> None:
        """Write a line."""
        with self.lock:
            for stream in (sys.stdout, self.file):
                # Whoever stops reading does not stop the work.
                with suppress(OSError):
                    stream.write(f"{shown(text)}\n")
                    stream.flush()


def versions(names: Sequence[str]) -> dict[str, str]:
    """Return the versions of packages that can be found; importing them would take seconds."""
    found = {}
    for name in names:
        with suppress(ImportError, ValueError):
            if find_spec(name):
                found[name] = "of unknown version"
                with suppress(metadata.PackageNotFoundError):
                    found[name] = metadata.version(_DISTRIBUTIONS.get(name, name))
    return found


def check_packages(parts: Sequence[str], log: Log) -> list[str]:
    """Say what can be imported and what cannot; return the parts that can run."""
    found = versions((*NEEDED, *NEEDED_BY_CELLS, *OPTIONAL))
    listed = ", ".join(f"{name} {version}" for name, version in found.items())
    log.say(f"python {sys.version.split()[0]}, {os.cpu_count()} cores, {listed}")
    missing = [name for name in (*NEEDED, *NEEDED_BY_CELLS, *OPTIONAL) if name not in found]
    for name in missing:
        role = "not needed here" if name in OPTIONAL else "needed by all parts"
        role = "needed by the part cells" if name in NEEDED_BY_CELLS else role
        log.say(f"missing: {name} ({role})")
    if any(name in missing for name in NEEDED):
        return []
    if any(name in missing for name in NEEDED_BY_CELLS):
        return [part for part in parts if part != "cells"]
    return list(parts)


def plan(options: argparse.Namespace, others: Sequence[str]) -> list[Part]:
    """Return the processes of the parts that were asked for."""
    toy = ("--toy",) if options.toy else ()
    tolerance = () if options.tolerance is None else ("--tolerance", str(options.tolerance))
    settings = ("toy",) if options.toy else ("cnn4_20", "cnn4_100", "resnet18_20")
    cells = [
        *(("--cells", *options.cells) if options.cells else ()),
        *("--rounds", str(options.rounds or (3 if options.toy else 1000))),
        *("--jobs", options.jobs or ("1" if options.toy else "auto")),
        *(("--data_dir", str(options.data_dir.resolve())) if options.data_dir else ()),
        *(("--work", str(options.work.resolve())) if options.work else ()),
        *others,
    ]
    made = {
        "equality": [Part("equality", 2, ("benchmarks.device.equality", *tolerance, *toy))],
        "speed": [
            Part(f"speed, {name}", 1, ("benchmarks.device.speed", "--setting", name, *toy))
            for name in settings
        ],
        "cells": [Part("cells", 6, ("benchmarks.device.cells", *cells, *toy))],
    }
    return [part for name in options.parts for part in made[name]]


def run_part(part: Part, seconds: float, output: Path, log: Log) -> int:
    """Run a process to its end, or until its time is over; return its exit code, 1 if it was."""
    log.say(f"\n{part.name}: {seconds:.0f} s at most")
    command = python(*part.arguments, "--seconds", f"{seconds:.1f}", "-o", str(output))
    process = start(command, subprocess.PIPE, {"PYTHONPATH": importable(), "PYTHONUNBUFFERED": "1"})
    reader = threading.Thread(target=_copy, args=(process, log), daemon=True)
    reader.start()
    try:
        code = process.wait(seconds)
        if code is None:
            log.say(f"{part.name}: stopped, its time is over")
            code = 1
    finally:
        end([process], _ENDING / 2)
        reader.join(1)
    if code:
        log.say(f"{part.name}: {explain(code)}")
    return code


def _copy(process: Child, log: Log) -> None:
    output = process.process.stdout  # type: ignore[union-attr]
    assert output is not None
    for line in output:
        log.say(line.decode(errors="replace").rstrip("\n"))


def run_parts(parts: Sequence[Part], deadline: Deadline, output: Path, log: Log) -> int:
    """Run parts one after the other; return 1 if one did not end well."""
    code = 0
    for number, part in enumerate(parts):
        weights = [other.weight for other in parts[number:]]
        seconds = (deadline.left() - _ENDING) * part.weight / sum(weights)
        if seconds <= 0:
            log.say(f"{part.name}: no time is left")
            continue
        try:
            code = max(code, int(run_part(part, seconds, output, log) != 0))
        except OSError as error:
            log.say(f"{part.name}: {error}")
            code = 1
    return code


def main(arguments: Sequence[str] | None = None, age: float = 0.0) -> int:
    """Run the parts within the budget; return 0, 1 if something is wrong, 2 for a mistake."""
    parser = _parser()
    options, others = parser.parse_known_args(arguments)
    if not options.budget:
        parser.error("--budget: expected some time, such as 8m, got none")
    deadline = Deadline(options.budget, age)
    output: Path = options.output.resolve()
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        parser.error(f"--output: expected a new or empty folder, got {output}")
    output.mkdir(parents=True, exist_ok=True)
    with (output / "log.txt").open("w", encoding="utf-8") as file:
        log = Log(file)
        possible = check_packages(options.parts, log)
        left_out = [part for part in options.parts if part not in possible]
        if left_out:
            log.say(f"left out for what is missing: {', '.join(left_out)}")
        options.parts = possible
        code = run_parts(plan(options, others), deadline, output, log)
        log.say(f"\n{deadline.left():.0f} s of the budget are left")
    return max(code, int(bool(left_out)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.device", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--budget", type=duration, default="8m", help="such as 8m or 90s")
    parser.add_argument("-o", "--output", type=Path, required=True, help="a new or empty folder")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--data_dir", type=Path, help="folder of the data sets")
    parser.add_argument("--cells", nargs="+", metavar="CONFIG/METHOD", help="in this order")
    parser.add_argument("--rounds", type=int, help="of each cell; 1000 by default")
    parser.add_argument("--jobs", help="cells at once; auto measures 1, 2 and 4")
    parser.add_argument("--work", type=Path, help="for run folders; temporary by default")
    parser.add_argument("--tolerance", type=float, help="largest difference that is equal")
    parser.add_argument("--toy", action="store_true", help="everything at toy size")
    return parser
