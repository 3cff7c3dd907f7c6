"""Measures the cost of aggregation: seconds against copying and multiplying as much, and bytes.

``python -m benchmarks.aggregation`` times one aggregation of the four-layer CNN for CIFAR-10
(878,538 parameters, float32) and prints medians as a Markdown table. In brackets: times the copy of
all uploads into new memory, and times one product ``[M, M] x [M, D]`` into memory at hand. The
cases take turns, so that other work on the machine hits them alike. ``--memory`` prints the peak of
physical memory instead, uploads included, for 20 clients with ResNet-18 on 200 classes. Linux.

Legend: M clients, D parameters.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import torch

from benchmarks.measure import (
    MODELS,
    RandomClients,
    bytes_of,
    cohort,
    in_new_process,
    reset_peak,
    resident,
)
from cwfed.aggregators import CFL, Aggregator, CwFedAvg, FedAMP, FedAvg, FedFomo, ServerContext
from cwfed.aggregators.base import ServerRound
from cwfed.aggregators.fedfomo import UPLOADED
from cwfed.functional.stacking import Bank, row

METHODS: Mapping[str, Callable[[], Aggregator]] = {
    "fedavg": FedAvg,
    "cwfedavg output": lambda: CwFedAvg("output"),
    "cwfedavg all": lambda: CwFedAvg("all"),
    "cfl": lambda: CFL(eps1=1e9, eps2=0.0, warm_up=0),
    "fedamp": lambda: FedAMP(alpha=100.0, sigma=1e5),
    "fedfomo mix": FedFomo,
    "fedfomo": FedFomo,
}
TIMED = ["fedavg", "cwfedavg output", "cwfedavg all", "fedamp", "fedfomo mix"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table; return 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aggregation", description=__doc__)
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--clients", type=int, nargs="+")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=METHODS)
    parser.add_argument("--memory", action="store_true", help="measure bytes, not seconds")
    options = parser.parse_args(arguments)
    if options.memory:
        model = options.model or "resnet18_tiny_imagenet"
        sys.stdout.write(
            memory_table(model, options.clients or [20], options.methods or [*METHODS])
        )
        return 0
    clients, methods = options.clients or [10, 20, 50, 100, 200], options.methods or TIMED
    model = options.model or "cnn4_cifar10"
    sys.stdout.write(f"{header(['clients', 'threads', 'copy', 'product', *methods])}\n")
    for threads in options.threads:
        torch.set_num_threads(threads)
        for count in clients:
            seconds = times(model, count, methods, options.repeats)
            sys.stdout.write(f"{time_row(count, threads, seconds)}\n")
            sys.stdout.flush()
    return 0


def times(model: str, clients: int, methods: Sequence[str], repeats: int) -> dict[str, float]:
    """Return the median seconds of the copy, the product and every method."""
    uploads, server = cohort(model, clients)
    weights_MM = torch.rand(clients, clients).softmax(1)
    flat_MD = torch.rand(clients, bytes_of(uploads) // 4 // clients)
    product_MD = torch.empty_like(flat_MD)
    cases: dict[str, Callable[[], Any]] = {
        "copy": lambda: {name: value.clone() for name, value in uploads.items()},
        "product": lambda: torch.matmul(weights_MM, flat_MD, out=product_MD),
        **{name: server_side(name, uploads, server) for name in methods},
    }
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats + 1):
        for name, case in cases.items():
            start = perf_counter()
            made = case()
            taken[name].append(perf_counter() - start)
            del made
    return {name: median(seconds[1:]) for name, seconds in taken.items()}


def server_side(name: str, uploads: Bank, server: ServerContext) -> Callable[[], object]:
    """Return a call of what the server computes in a round of full participation.

    For FedFomo that is the choice before training, whose mix of models is also given alone.
    """
    method, everyone = METHODS[name](), torch.arange(server.num_clients)
    state = method.init_state(server, uploads)
    clients = RandomClients(server)
    if isinstance(method, FedFomo):
        if name == "fedfomo mix":
            weights_MM = torch.rand(len(everyone), len(everyone), dtype=torch.float64).softmax(1)
            return lambda: method.mixed(weights_MM, everyone, uploads, server)
        state = {**state, UPLOADED: torch.ones(server.num_clients, dtype=torch.bool)}
        return lambda: method.select(uploads, uploads, everyone, state, server, clients)
    starts = {key: value.expand_as(uploads[key]) for key, value in row(uploads, 0).items()}
    sent = ServerRound(uploads, starts, everyone, clients)
    return lambda: method.aggregate(sent, state, server)


def memory_table(model: str, clients: Sequence[int], methods: Sequence[str]) -> str:
    """Return a Markdown table of peaks over what a process holds before there are uploads."""
    rows = [header(["clients", "method", "uploads, MB", "peak, MB", "peak / uploads"])]
    for count in clients:
        for name in methods:
            size, peak = in_new_process(peak_of, name, model, count)
            rows.append(
                f"| {count} | {name} | {size / 1e6:.0f} | {peak / 1e6:.0f} | {peak / size:.2f} |"
            )
    return "\n".join(rows) + "\n"


def peak_of(name: str, model: str, clients: int) -> tuple[int, int]:
    """Return the bytes of the uploads and the peak of one aggregation, uploads included."""
    torch.set_num_threads(1)
    small, server = cohort(model, 2)
    server_side(name, small, server)()  # what a first use loads is no cost of aggregation
    del small, server
    before = resident()
    uploads, server = cohort(model, clients)
    aggregate = server_side(name, uploads, server)
    reset_peak()
    made = aggregate()
    peak = resident(peak=True)
    del made
    return bytes_of(uploads), peak - before


def header(names: Sequence[str]) -> str:
    """Return the first two lines of a Markdown table."""
    return f"| {' | '.join(names)} |\n|{'---|' * len(names)}"


def time_row(clients: int, threads: int, seconds: Mapping[str, float]) -> str:
    """Return a line of the table of times, in milliseconds."""
    cells = [
        f"{1e3 * value:.0f} ({value / seconds['copy']:.2f}, {value / seconds['product']:.2f})"
        for value in seconds.values()
    ]
    return f"| {clients} | {threads} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
