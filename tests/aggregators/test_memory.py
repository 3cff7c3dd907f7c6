"""No aggregator makes a temporary as large as the bank: memory as the kernel counts it."""

import os
from pathlib import Path

import pytest
import torch

from benchmarks.measure import RandomClients, bytes_of, reset_peak, resident
from cwfed.aggregators import CFL, IFCA, CwFedAvg, FedAMP, FedAvg, FedFomo, FedPer
from cwfed.aggregators.banks import large_rows, replace_rows
from cwfed.aggregators.base import ServerContext, ServerRound
from cwfed.contract.spec import ModelSpec
from cwfed.functional.stacking import row

pytestmark = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's memory accounting"
)
CLIENTS, CLASSES = 20, 10
NAMES = ("a", "w")
MODEL = ModelSpec("head", "w", None, (("a",), ("w",)), NAMES, (), ())


def problem():
    """80 MB of uploads, nearly all of it in one tensor, in two groups of clients."""
    g = torch.Generator().manual_seed(0)
    uploads = {
        "a": torch.rand(CLIENTS, 1_000_000, generator=g),
        "w": torch.rand(CLIENTS, CLASSES, 5, generator=g),
    }
    uploads["a"][::2] -= 1.0
    counts = torch.randint(1, 30, (CLIENTS, CLASSES), generator=g)
    other = row(uploads, 1)
    return uploads, ServerContext(counts.sum(1), counts, MODEL, {}, lambda k: other)


def aggregated(aggregator, uploads, server):
    everyone = torch.arange(CLIENTS)
    starts = {n: v[:1].expand_as(v) for n, v in uploads.items()}
    state = dict(aggregator.init_state(server, uploads))
    if isinstance(aggregator, IFCA):
        state["choice_M"] = everyone % 2
    if isinstance(aggregator, FedFomo):
        weights = torch.rand(CLIENTS, CLIENTS, dtype=torch.float64).softmax(1)
        return lambda: aggregator.mixed(weights, everyone, uploads, server)
    sent = ServerRound(uploads, starts, everyone, RandomClients(server))
    return lambda: aggregator.aggregate(sent, state, server)


@pytest.mark.parametrize(
    ("aggregator", "banks"),
    [
        (FedAvg(), 0.05),
        (FedPer(), 0.05),
        (CwFedAvg(), 0.05),
        (CwFedAvg("all"), 1),
        (FedAMP(100.0, 1e5), 1),
        (FedFomo(), 1),
        (CFL(1e9, 0.0, 0), 1),
        (IFCA(), 1.2),  # the centres beside what the clients receive
    ],
    ids=lambda value: type(value).__name__,
)
def test_beside_uploads_and_result_there_is_next_to_nothing(aggregator, banks):
    torch.set_num_threads(1)
    uploads, server = problem()
    call = aggregated(aggregator, uploads, server)
    call()
    before = resident()
    reset_peak()
    made = call()
    extra = (resident(peak=True) - before) / bytes_of(uploads)
    del made
    # The lower bound only shows that the measure sees a bank: freed memory may be used again.
    assert banks / 2 - 0.1 < extra < banks + 0.2


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_replacing_rows_makes_one_bank(dtype):
    bank = {"a": torch.ones(10, 2_000_000, dtype=dtype)}
    fresh = {"a": torch.zeros(1, 2_000_000, dtype=dtype)}
    before = resident()
    reset_peak()
    made = replace_rows(bank, [3], fresh)
    assert resident(peak=True) - before < 1.2 * bytes_of(bank)
    assert made["a"].sum(1).tolist() == [2e6] * 3 + [0] + [2e6] * 6


def test_large_memory_comes_in_huge_pages_where_there_are_any():
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not setting.exists() or "[never]" in setting.read_text():
        pytest.skip("this machine has no huge pages")

    def huge():
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return next(int(x.split()[1]) << 10 for x in lines if x.startswith("AnonHugePages"))

    before = huge()
    large = large_rows(64, torch.empty(1, 1 << 18)).fill_(2.0)
    assert huge() - before > large.numel() * 4 / 2
    assert large.shape == (64, 1 << 18)
    assert large.sum() == 2.0 * large.numel()
