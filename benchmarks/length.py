"""Measures a long run: open files, memory and the log's size after every round.

``python -m benchmarks.length`` runs 500 clients with 20 generated images each, IID, for 200 rounds
and prints every tenth round; ``--clients``, ``--rounds`` and ``--budget`` make it shorter. Other
options are those of ``cwfed fit``, such as ``--trainer.engine vectorized``.
"""

import json
import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import torch

from benchmarks.faults.trial import forked
from cwfed.federated.record import RoundRecord
from cwfed.federated.state import FederatedState
from cwfed.messages.terminal import Terminal
from cwfed.records.names import ROUNDS
from cwfed.runs.folder_writer import FolderWriter
from cwfed.sweeps.deadline import duration

IMAGES_PER_CLIENT = 20
CLASSES = 10


@dataclass(frozen=True)
class Sample:
    """A process after a round.

    Attributes:
        round: The round.
        handles: Open file descriptors.
        memory: Resident memory, bytes.
        rounds_bytes: Size of ``rounds.jsonl``.
        seconds: Clock, of no particular start.
    """

    round: int
    handles: int
    memory: int
    rounds_bytes: int
    seconds: float

    @classmethod
    def now(cls, folder: Path, round_: int) -> "Sample":
        """Measure this process and its run folder."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        lines = folder / ROUNDS
        return cls(
            round_,
            len(os.listdir("/proc/self/fd")),
            pages * os.sysconf("SC_PAGE_SIZE"),
            lines.stat().st_size if lines.exists() else 0,
            monotonic(),
        )


class Meter:
    """Measures a run after each of its rounds.

    Args:
        path: File that takes a JSON line a round.
        budget: Seconds after which the run is stopped.
    """

    def __init__(self, path: Path, budget: float | None = None) -> None:
        self.path = path
        self.budget = budget

    def install(self) -> None:
        """Measure the runs of this process; for a process of its own only."""
        write, start, meter = FolderWriter.on_round, monotonic(), self

        def on_round(writer: FolderWriter, record: RoundRecord, state: FederatedState) -> None:
            write(writer, record, state)
            sample = Sample.now(writer.folder.path, record.round)
            with meter.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(sample)) + "\n")
            if meter.budget is not None and monotonic() - start > meter.budget:
                raise KeyboardInterrupt

        setattr(FolderWriter, "on_round", on_round)  # noqa: B010

    def read(self) -> list[Sample]:
        """Return the samples so far."""
        return [Sample(**json.loads(line)) for line in self.path.read_text().splitlines()]


def main() -> int:
    """Run the command."""
    parser = ArgumentParser(
        prog="python -m benchmarks.length",
        description=__doc__,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--budget", type=duration, help="stop after 90s, 30m or 8h")
    (options, others), terminal = parser.parse_known_args(), Terminal()
    torch.set_num_threads(1)
    with TemporaryDirectory() as scratch:
        meter = Meter(Path(scratch) / "samples.jsonl", options.budget)
        fit = [
            *("fit", "--config", "quickstart", "--data", "SyntheticImages"),
            *("--data.num_classes", str(CLASSES), "--data.image_size", "16"),
            *("--data.samples_per_class", str(options.clients * IMAGES_PER_CLIENT // CLASSES)),
            *("--partition", "IID", "--partition.num_clients", str(options.clients)),
            *("--model.hidden_features", "8", "--rounds", str(options.rounds)),
            *("--run_dir", str(Path(scratch) / "run"), *others),
        ]
        outcome = forked(fit, Path(scratch) / "log.txt", prepare=meter.install)
        samples = meter.read() if meter.path.exists() else []
    for sample in samples[:: max(len(samples) // 20, 1)]:
        terminal.say(
            f"round {sample.round}  {sample.handles} handles  {sample.memory / 2**20:.1f} MiB  "
            f"rounds.jsonl {sample.rounds_bytes} bytes  {sample.seconds - samples[0].seconds:.0f} s"
        )
    terminal.say(outcome.text[-400:])
    return outcome.code


if __name__ == "__main__":
    sys.exit(main())
