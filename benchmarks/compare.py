"""One command's table: methods side by side on one configuration.

``python -m benchmarks.compare --config mnist_pathological --rounds 3 -o runs/compare`` runs every
shipped method of the paper's tables, one run folder each, and prints a Markdown table. Finished
runs are kept and unfinished ones resumed, so the command can be stopped and repeated.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cwfed.cli import main as cwfed
from cwfed.results import METRICS

METHODS = (
    "local",
    "fedavg",
    "fedprox",
    "fedamp",
    "fedfomo",
    "cfl",
    "ifca",
    "fednh",
    "feduv",
    "ditto",
    "fedrep",
    "fedper",
    "cwfedavg",
)
"""Fine-tuned FedAvg is FedAvg's accuracy after local training."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the methods and print the table; return the exit code of the first that failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("--config", required=True, help="configuration of data and partition")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="NAME")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="folder of the run folders"
    )
    options, others = parser.parse_known_args(arguments)
    for method in options.methods:
        folder = options.output / method
        code = cwfed(_command(folder, method, options, others))
        if code:
            return code
    results = [_result(options.output / method) for method in options.methods]
    sys.stdout.write(table(results))
    return 0


def table(results: Iterable[Mapping[str, Any]]) -> str:
    """Return a Markdown table of results: accuracies, bytes and seconds.

    Args:
        results: Contents of ``result.json``, one a method.
    """
    rows = [
        "| method | received, last | received, best | after local training, last | "
        "after local training, best | MB up a client and round | MB down | seconds a round |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        accuracies = [
            f"{100 * result[metric][kind]['accuracy']:.2f}"
            for metric in METRICS
            for kind in ("last", "best")
        ]
        megabytes = [
            f"{result['bytes'][way]['per_client_and_round'] / 1e6:.2f}" for way in ("up", "down")
        ]
        seconds = sum(result["seconds"].values()) / max(result["rounds"], 1)
        rows.append(
            f"| {' | '.join([result['algorithm'], *accuracies, *megabytes, f'{seconds:.0f}'])} |"
        )
    return "\n".join(rows) + "\n"


def _command(
    folder: Path, method: str, options: argparse.Namespace, others: Sequence[str]
) -> list[str]:
    if (folder / "config.yaml").is_file():
        return ["fit", "--resume", str(folder)]
    return [
        *("fit", "--config", options.config, "--algorithm", method, "--run_dir", str(folder)),
        *("--rounds", str(options.rounds), "--seed", str(options.seed), *others),
    ]


def _result(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return result


if __name__ == "__main__":
    sys.exit(main())
