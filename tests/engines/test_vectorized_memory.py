"""How many clients are stacked, and how fast their steps are."""

from functools import partial
from weakref import WeakSet

import pytest
import torch
from engine_cases import KERNELS, Sizes, assert_close, case
from test_exactness import Branching

from cwfed.engines.vectorized import memory
from cwfed.engines.vectorized.memory import bytes_each, find_chunk, free_memory
from cwfed.engines.vectorized.timing import VARIANTS, choose_kernel, step_seconds

ADAM = partial(torch.optim.Adam, lr=0.01)


def programs(c, fits=10**9):
    """Return what makes programs, out of memory beyond a number of clients; and the tries."""
    engine, tried = c.stacked(chunk=1), []

    def make(size):
        tried.append(size)
        if size > fits:
            raise torch.OutOfMemoryError("no memory for that")
        names = c.workload.contract.parameters
        return engine._program(engine._new_stack(size), names, c.objective, (1, size, 8))

    return make, tried


def test_bytes_of_a_client():
    c = case(ADAM)
    make, _ = programs(c)
    parameters = sum(p.numel() for p in c.workload.model.parameters()) * 8
    # 8 images of 4 x 3 x 3 after the convolution, float64; the backward pass needs it.
    convolved = 8 * 4 * 3 * 3 * 8
    found = bytes_each(make(1))
    # Value, result, anchor, gradient, two moments.
    assert 6 * parameters + convolved < found < 6 * parameters + 40 * convolved
    assert bytes_each(programs(case())[0](1)) == found - 2 * parameters - 4 * len(
        list(c.workload.model.parameters())
    ), "no moments and no step counters"


def test_the_chunk_is_what_the_memory_holds():
    make, tried = programs(case(ADAM))
    each = bytes_each(make(1))
    assert find_chunk(make, 8, 10**12) == 8
    few = find_chunk(make, 1000, 10 * each)
    assert few == int(memory._FRACTION * 10)
    assert find_chunk(make, 8, 0) == 1
    assert tried[-1] == 1


def test_the_chunk_is_halved_while_memory_runs_out():
    make, tried = programs(case(ADAM), fits=11)
    assert find_chunk(make, 50, 10**12) == 6
    assert tried == [1, 50, 25, 12, 6]
    make, _ = programs(case(ADAM), fits=0)
    with pytest.raises(torch.OutOfMemoryError):
        find_chunk(make, 50, 10**12)


def test_what_did_not_fit_is_gone_before_less_is_tried():
    c = case()
    make, _ = programs(c)
    alive = WeakSet()

    def tight(size):
        assert size == 1 or not len(alive), "two at once"
        program = make(size)
        if size > 1:
            alive.add(program)
        if size > 3:
            program.stepper = out_of_memory
        return program

    def out_of_memory(optimizer):
        raise torch.OutOfMemoryError("no memory for that")

    assert find_chunk(tight, 8, 10**12) == 2
    assert len(alive) == 0


def test_memory_of_this_machine(tmp_path):
    assert 2**20 < free_memory(torch.device("cpu")) < 2**50
    assert memory._left_to_container(tmp_path) == 2**62
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("700\n")
    assert memory._left_to_container(tmp_path) == 2**62
    (tmp_path / "memory.max").write_text("1000\n")
    assert memory._left_to_container(tmp_path) == 300


def test_the_engine_finds_its_chunk_once():
    c = case()
    engine = c.stacked()
    assert engine.chunk is None
    c.fit(engine, [1, 2])
    assert engine.chunk == 8
    assert c.stacked(chunk=3).find_chunk(*c.phases[0]) == 3


def test_five_hundred_clients_go_through_chunks():
    sizes = Sizes(*(6, 10) * 250)
    c = case(partition=sizes, samples=1000, epochs=1)
    engine = c.stacked(chunk=120)
    chunks = []
    run = engine.run
    engine.run = lambda train, some: (chunks.extend(some), run(train, some))
    clients = range(500)
    ours = c.fit(engine, clients)
    assert len(chunks) >= 5
    few = [0, 7, 250, 499]
    reference = c.fit(c.sequential, few)
    for name, value in reference.models.items():
        torch.testing.assert_close(ours.models[name][few], value, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_seconds_of_a_step(kernel):
    c = case()
    engine = c.stacked(kernel=kernel)
    assert 1e-5 < step_seconds(engine, *c.phases[0], steps=2) < 5
    assert_close(c.fit(engine), c.fit(c.sequential))


def test_the_fastest_kernel_is_chosen_and_those_that_fail_are_left_out(monkeypatch):
    c = case()
    times = dict(zip(VARIANTS, (3.0, 1.0, 2.0, 1.5), strict=True))
    fake = lambda engine, *_: times[engine.kernel, engine.workload.memory_format]  # noqa: E731
    monkeypatch.setattr("cwfed.engines.vectorized.timing.step_seconds", fake)
    choose = partial(choose_kernel, accelerator="cpu", precision="64-true", chunk=8)
    assert choose(c.workload, c.phases) == (("unfold", "contiguous"), times)
    assert choose(c.workload, c.phases * 2)[1]["grouped", "contiguous"] == 6.0
    odd = case(net=Branching)
    assert choose(odd.workload, odd.phases)[0] == ("streams", "channels_last")
    assert {kernel for kernel, _ in choose(odd.workload, odd.phases)[1]} == {"streams"}
    with pytest.raises(ValueError, match=r"trainer.kernel: none can be used: grouped, contiguous"):
        choose_kernel(c.workload, c.phases, "cpu", "16-mixed")


def test_kernels_are_timed():
    c = case()
    variant, seconds = choose_kernel(c.workload, c.phases, "cpu", "64-true", chunk=8)
    assert seconds.keys() == set(VARIANTS)
    assert variant == min(seconds, key=seconds.get)
