"""Captured steps without a GPU: a tape repeats operations on the memory they were recorded with."""

import logging
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch
from engine_cases import KERNELS, assert_close, case
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensorDeviceMismatchError,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cwfed.clients import TrainingPhase
from cwfed.engines.sequential import model_state
from cwfed.engines.vectorized import kernels
from cwfed.engines.vectorized.capture import CudaGraphs
from cwfed.engines.vectorized.kernels import ByClient, LocalLoss, Stacked
from cwfed.engines.vectorized.program import Eager, Program
from cwfed.engines.vectorized.resident import ResidentData
from cwfed.engines.vectorized.stack import Stack
from cwfed.objectives import WDR, ClassifierVariance, EncoderUniformity, Proximal

MOMENTUM = partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.01)
ADAM = partial(torch.optim.Adam, lr=0.01)
DAMPENED = partial(torch.optim.SGD, lr=0.05, momentum=0.9, dampening=0.5)
TERMS = [WDR(), Proximal(0.5), ClassifierVariance(), EncoderUniformity()]


class Tape(TorchDispatchMode):
    """Like a CUDA graph: the same operations on the same memory, numbers of Python's as they were.

    Also like one, it refuses to read a number from a tensor.
    """

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("a step reads a number from the device")
        out = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, out))
        return out

    def replay(self):
        with torch.no_grad():
            for func, args, kwargs, out in self.calls:
                again = func(*args, **kwargs)
                for old, new in zip(tree_leaves(out), tree_leaves(again), strict=True):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


class Tapes:
    """A capture as the engine takes one; counts what it does."""

    def __init__(self):
        self.captured = self.forgotten = 0

    def forget(self):
        self.forgotten += 1

    def warm_up(self, step):
        step()

    def capture(self, step):
        self.captured += 1
        with Tape() as tape:
            step()
        return tape.replay


@pytest.fixture
def counters_on_the_cpu(monkeypatch):
    """Let Adam keep its step counter in a tensor on the CPU, as it can on a GPU."""
    adam = import_module("torch.optim.adam")
    supported = adam._get_capturable_supported_devices

    def with_cpu(*args, **kwargs):
        return [*supported(*args, **kwargs), "cpu"]

    monkeypatch.setattr(adam, "_get_capturable_supported_devices", with_cpu)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("optimizer", [MOMENTUM, ADAM])
def test_replayed_steps_give_the_numbers_of_the_sequential_engine(
    optimizer, kernel, counters_on_the_cpu
):
    c = case(optimizer, objectives=TERMS, epochs=1)
    engine = c.stacked(kernel=kernel, chunk=5)
    engine.capture = tapes = Tapes()
    assert_close(c.fit(engine), c.fit(c.sequential))
    first = tapes.captured
    assert first >= 3, "several widths"
    # Other clients, other batches, fresh optimisers, and rows that others have left behind.
    for round_, clients in ((2, range(8)), (3, [0, 3, 6]), (4, [4])):
        ours = c.fit(engine, clients, round_)
        assert_close(ours, c.fit(c.sequential, clients, round_))
    assert engine.capture is tapes
    c.fit(engine, round_=5)
    assert tapes.captured <= first + 1, "captured once and kept"
    assert engine.captured == tapes.captured
    engine.close()
    assert (engine.captured, tapes.forgotten) == (0, 1)
    assert_close(c.fit(engine), c.fit(c.sequential))
    assert engine.captured


def test_phases_have_captures_of_their_own():
    c = case(MOMENTUM)
    engine = c.stacked()
    engine.capture = tapes = Tapes()
    phases = [TrainingPhase(trainable=part, plan=1) for part in ("all", "head", "base")]
    for phase in (*phases, TrainingPhase(epochs=3), phases[0]):
        ours = c.fit(engine, [0, 3], phase=phase)
        assert_close(ours, c.fit(c.sequential, [0, 3], phase=phase))
    assert engine.capture is tapes


def test_a_loop_through_python_is_caught_by_the_tape():
    """So that the tests above mean something: Adam without a counter on the device."""
    c = case(ADAM)
    engine = c.stacked()
    engine.capture = Tapes()
    assert_close(c.fit(engine), c.fit(c.sequential))
    assert engine.capture is None


class Counting(torch.optim.SGD):
    """Counts its steps in a number of Python's."""

    def step(self, closure=None):
        super().step(closure)
        self.param_groups[0]["steps"] = self.param_groups[0].get("steps", 0) + 1


class Replacing(torch.optim.SGD):
    """Keeps a running gradient in a new tensor each step."""

    def step(self, closure=None):
        if closure:
            closure()
        for group in self.param_groups:
            for p in group["params"]:
                old = self.state[p].get("mean", torch.zeros_like(p))
                self.state[p]["mean"] = (0.5 * old + p.grad).detach()
                p.data.sub_(0.05 * self.state[p]["mean"])


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [
        (DAMPENED, "cannot be reset in place"),
        (partial(Counting, lr=0.05), "changes its options"),
        (partial(Replacing, lr=0.05), "replaces its state"),
    ],
)
def test_what_cannot_be_replayed_runs_step_by_step_and_says_so_once(optimizer, reason, caplog):
    c = case(optimizer)
    engine = c.stacked()
    engine.capture = tapes = Tapes()
    with caplog.at_level(logging.WARNING, "cwfed"):
        for round_ in (1, 2):
            assert_close(c.fit(engine, round_=round_), c.fit(c.sequential, round_=round_))
    (record,) = caplog.records
    assert reason in record.message
    assert tapes.captured == 0


def test_a_capture_that_fails_is_given_up_with_its_reason(caplog):
    class Fails(Tapes):
        def capture(self, step):
            step()
            raise RuntimeError("operation not permitted when stream is capturing")

    c = case(MOMENTUM)
    engine = c.stacked()
    engine.capture = Fails()
    assert_close(c.fit(engine), c.fit(c.sequential))
    (record,) = caplog.records
    assert "RuntimeError: operation not permitted" in record.message


def test_buckets_without_captures_give_the_numbers_of_exact_widths(monkeypatch):
    c = case(ADAM, objectives=TERMS)
    engine = c.stacked(chunk=8)
    exact = c.fit(engine)
    for runner in engine._runners.values():
        assert isinstance(runner, Eager)
        most = runner.program.rows
        runner.widths = lambda active, most=most: min(most, 2 * active)
    assert_close(c.fit(engine), exact, 0)


class FakeCuda:
    """What `CudaGraphs` asks of PyTorch, written down."""

    def __init__(self, monkeypatch):
        self.calls, self.pools, self.streams = [], iter(range(9)), 0
        self.current = self.Stream()
        for name in ("Stream", "current_stream", "stream", "synchronize", "CUDAGraph", "graph"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(self.pools))
        monkeypatch.setattr(
            torch._C, "_cuda_clearCublasWorkspaces", lambda: self.calls.append("clear")
        )

    def Stream(self):
        self.streams += 1
        return SimpleNamespace(wait_stream=lambda other: None)

    def current_stream(self):
        return self.current

    @contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def synchronize(self):
        self.calls.append("synchronize")

    def CUDAGraph(self):
        return SimpleNamespace(replay=lambda: None)

    @contextmanager
    def graph(self, graph, pool):
        self.calls.append(f"begin {pool}")
        before, self.current = self.current, self.Stream()
        yield
        self.calls.append("end")
        self.current = before


def test_a_graph_makes_the_workspaces_that_it_remembers(monkeypatch):
    """Lightning frees those of the warm-up at the end of each fit, when nothing may use them."""
    cuda = FakeCuda(monkeypatch)
    graphs = CudaGraphs()
    for _ in range(3):
        graphs.warm_up(lambda: cuda.calls.append("step"))
    assert (cuda.calls, cuda.streams) == (["step"] * 3, 2), "the current one, and one beside it"
    cuda.calls.clear()
    graphs.capture(lambda: cuda.calls.append("step"))
    cleared = ["synchronize", "clear"]
    assert cuda.calls == [*cleared, "begin 0", "step", "end", *cleared]


def test_a_capture_that_fails_gives_the_stream_back(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    before = cuda.current

    def fails():
        assert cuda.current is not before
        raise RuntimeError("not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        CudaGraphs().capture(fails)
    assert cuda.current is before


def test_graphs_share_memory_until_they_are_gone(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    graphs = CudaGraphs()
    for _ in range(2):
        graphs.capture(lambda: None)
    graphs.forget()
    graphs.capture(lambda: None)
    begun = [call for call in cuda.calls if call.startswith("begin")]
    assert begun == ["begin 0", "begin 0", "begin 1"]


def steps_on(device, c, kernel):
    """Take two steps on a device that need not exist: of three clients, then of two."""
    workload = c.workload
    state = model_state(workload.model)
    named = [name for name, _ in workload.model.named_parameters()]
    stack = Stack(state, named, workload.contract, 4, 3, device)
    loss = LocalLoss(workload.model, workload.contract, c.objective)
    gradients = ByClient(0) if kernel == "streams" else Stacked(kernel == "unfold")
    names = workload.contract.parameters
    data = ResidentData(workload.data, device)
    program = Program(stack, data, loss, gradients, workload.optimizer, names, (2, 3, 8))
    whole = program.optimizer(3, capturable=True)
    program.stepper(whole)()
    program.stepper(whole.prefix(2))()
    stack.finish(slice(1, 3))
    return stack


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("optimizer", [MOMENTUM, ADAM])
@pytest.mark.filterwarnings("ignore:.*CUDA is not available.*")
def test_a_step_stays_on_the_device(kernel, optimizer, monkeypatch):
    """Fake tensors refuse to mix devices and to tell the host what they hold.

    PyTorch's backward pass needs a device that exists; the tape above watches over that.
    """
    c = case(optimizer, objectives=TERMS)
    zeros = lambda loss, leaves: {n: torch.zeros_like(v) for n, v in leaves.items()}  # noqa: E731
    monkeypatch.setattr(kernels, "_gradients", zeros)
    with FakeTensorMode(allow_non_fake_inputs=True):
        stack = steps_on(torch.device("cuda:0"), c, kernel)
    assert stack.losses_C.device == torch.device("cuda:0")
    assert stack.results["conv.weight"].device == torch.device("cuda:0")


def test_fake_tensors_would_tell():
    with FakeTensorMode():
        on_device = torch.zeros(3, device="cuda:0")
        with pytest.raises(FakeTensorDeviceMismatchError):
            on_device + torch.zeros(3)
        with pytest.raises(DataDependentOutputException):
            on_device[0].item()
