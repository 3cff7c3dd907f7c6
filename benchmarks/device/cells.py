"""Whole runs on this machine's device within a time: the third part of `benchmarks.device`.

``python -m benchmarks.device.cells --data_dir DIR --seconds 300 -o OUT`` runs cells
(``config/algorithm``) through ``cwfed fit``, as many at once as finish the most rounds together. A
cell is started only if the seconds a round measured so far say that it ends in time. What is known
of all cells is in OUT at any time: ``cells.md``, and ``cells.tar.gz`` without checkpoints. Further
options go to every ``cwfed fit``.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.device.fits import CannotMeasure, Fitting
from benchmarks.device.results import Cell
from benchmarks.device.schedule import Schedule, say
from cwfed.config.files import UsageError, config_root, find_algorithm, find_config
from cwfed.sweeps.deadline import Deadline, duration, process_age

MAIN = ("cwfedavg", "fedavg", "fedamp", "cfl")
VARIATIONS = ("cwfedavg_all", "cwfedavg_no_wdr", "cwfedavg_all_no_wdr")
CONFIGS = ("cifar100_practical", "cifar100_pathological")
LEVELS = (1, 2, 4)

TOY = (
    *("--data", "SyntheticImages", "--data.num_classes", "4", "--data.image_size", "16"),
    *("--data.samples_per_class", "20", "--partition.num_clients", "4"),
)
TOY_CELLS = ("quickstart/fedavg", "quickstart/cwfedavg")


def default_cells() -> list[str]:
    """Return what to run, the most wanted first."""
    every = sorted(path.stem for path in (config_root() / "algorithm").glob("*.yaml"))
    wanted = [
        *(f"{config}/{method}" for config in CONFIGS for method in MAIN),
        *(f"{CONFIGS[0]}/{method}" for method in VARIATIONS),
        *(f"mnist_practical/{method}" for method in MAIN),
        *(f"{config}/{method}" for config in CONFIGS for method in every),
    ]
    return list(dict.fromkeys(wanted))


def run_cells(schedule: Schedule, levels: Sequence[int], work: Path) -> int:
    """Measure, run, write; return 1 if a cell failed."""
    try:
        jobs = schedule.calibrate(levels, work / "short")
    except CannotMeasure as error:
        schedule.about = str(error)
        say(schedule.about)
        jobs = 1
    schedule.run(jobs)
    return int(any(cell.state == "failed" for cell in schedule.cells))


def main(arguments: Sequence[str] | None = None, age: float = 0.0) -> int:
    """Run cells; return 1 if one failed, 2 for a mistake."""
    options, others = _parser().parse_known_args(arguments)
    deadline = Deadline(options.seconds, age)
    names = options.cells or (list(TOY_CELLS) if options.toy else default_cells())
    grace, reserve = min(10.0, 0.1 * options.seconds), min(8.0, 0.1 * options.seconds)
    command = Fitting(options.data_dir, [*(TOY if options.toy else ()), *others])
    with TemporaryDirectory(prefix="cells-") as folder:
        work = options.work or Path(folder)
        try:
            cells = [_cell(name, work) for name in names]
        except UsageError as error:
            say(f"--cells: {error}")
            return 2
        schedule = Schedule(
            cells, command, options.rounds, deadline, options.output, grace, reserve
        )
        levels = LEVELS if options.jobs == "auto" else (int(options.jobs),)
        return run_cells(schedule, levels, work)


def _cell(name: str, work: Path) -> Cell:
    config, _, algorithm = name.rpartition("/")
    files = find_config(config, "--cells"), find_algorithm(algorithm)
    return Cell(name, work / files[0].stem / files[1].stem)


def _jobs(text: str) -> str:
    if text != "auto" and not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"expected auto or an integer >= 1, got {text!r}")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.device.cells", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=duration, required=True, help="time for all of it")
    parser.add_argument("--cells", nargs="+", metavar="CONFIG/METHOD", help="in this order")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--jobs", type=_jobs, default="auto", help="auto, or how many at once")
    parser.add_argument("--data_dir", type=Path)
    parser.add_argument("--work", type=Path, help="for run folders; temporary by default")
    parser.add_argument("--toy", action="store_true")
    return parser


if __name__ == "__main__":
    # A request to end is one to put everything away first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(age=process_age()))
