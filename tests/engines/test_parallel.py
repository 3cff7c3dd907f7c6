import os
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from helpers import Keep, assert_same, small_experiment

from cwfed.clients import WholeTrainingClient
from cwfed.engines.parallel import workers
from cwfed.engines.parallel.engine import ParallelEngine
from cwfed.engines.parallel.workers import Task, WorkerError, WorkerPool
from cwfed.engines.sequential import SequentialEngine
from cwfed.federated import LocalTraining, TrainerOptions
from cwfed.functional.stacking import take_rows
from cwfed.objectives import CrossEntropy, Objective, ObjectiveTerm, Proximal
from cwfed.processes.signals import STOPPING


class Broken(ObjectiveTerm):
    weight = 1.0

    def value(self, step, client):
        raise ArithmeticError("a term of a user's own")


def workload_of(**changes):
    prepared = small_experiment(**changes).prepare()
    return prepared, prepared.workload()


def run_with(make_engine, **changes):
    prepared = small_experiment(**changes).prepare()
    kept = Keep()
    loop = prepared.loop([kept])
    loop.engine = make_engine(prepared.workload())
    try:
        loop.run(loop.initial_state(prepared.initialisation()))
    finally:
        loop.engine.close()
    return kept


def lbfgs(parameters):
    return torch.optim.LBFGS(parameters, lr=0.01, max_iter=2)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)


@pytest.mark.parametrize("optimizer", [momentum, lbfgs])
@pytest.mark.parametrize("count", [1, 3])
def test_workers_give_the_bits_of_the_sequential_engine(optimizer, count):
    changes = {
        "client": LocalTraining(batch_size=8, local_epochs=2, optimizer=optimizer),
        "participation": 0.6,
        "dropout": 0.3,
    }
    one = run_with(lambda work: SequentialEngine(work, "cpu", "64-true"), **changes)
    many = run_with(lambda work: ParallelEngine(work, "64-true", count), **changes)
    for a, b in zip(one.states, many.states, strict=True):
        for name in ("uploads", "received"):
            assert_same(dict(getattr(a, name)), dict(getattr(b, name)))
        assert_same(dict(a.post_local), dict(b.post_local))
    for a, b in zip(one.records, many.records, strict=True):
        assert a.train_loss == b.train_loss
        assert_same(dict(a.received), dict(b.received))


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_training_in_one_call_gives_the_bits_of_training_by_steps(precision):
    trainer = TrainerOptions("cpu", precision, engine="sequential")
    changes = {"trainer": trainer, "rounds": 2}
    steps = run_with(lambda work: SequentialEngine(work, "cpu", precision), **changes)
    whole = run_with(
        lambda work: SequentialEngine(work, "cpu", precision, client=WholeTrainingClient), **changes
    )
    assert_same(dict(steps.states[-1].uploads), dict(whole.states[-1].uploads))
    assert [r.train_loss for r in steps.records] == [r.train_loss for r in whole.records]


def test_lightning_is_called_once_a_client(monkeypatch):
    calls = []
    step = WholeTrainingClient.training_step
    monkeypatch.setattr(
        WholeTrainingClient,
        "training_step",
        lambda self, *batch: (calls.append(self.context), step(self, *batch))[1],
    )
    prepared, work = workload_of()
    start = prepared.initialisation()
    ((phase, objective),) = prepared.experiment.phases
    engine = SequentialEngine(work, "cpu", "64-true", client=WholeTrainingClient)
    rows = take_rows(start, [0, 3])
    engine.fit(1, [0, 3], rows, rows, phase, objective)
    assert len(calls) == 2
    assert len(prepared.data.training_loader(0, 1)) > 1


def test_class_means_are_those_of_the_sequential_engine():
    prepared, work = workload_of()
    rows = take_rows(prepared.initialisation(), [1, 3, 4])
    engine = ParallelEngine(work, "64-true", 2)
    means, counts = engine.class_means([1, 3, 4], rows)
    engine.close()
    expected, expected_counts = SequentialEngine(work, "cpu", "64-true").class_means(
        [1, 3, 4], rows
    )
    assert torch.equal(means, expected)
    assert torch.equal(counts, expected_counts)


def test_anchors_reach_the_workers():
    prepared, work = workload_of()
    start = take_rows(prepared.initialisation(), [0, 2])
    far = {n: v + 1 if v.is_floating_point() else v for n, v in start.items()}
    ((phase, _),) = prepared.experiment.phases
    objective = Objective([CrossEntropy(), Proximal(0.5)])
    engine = ParallelEngine(work, "64-true", 2)
    ours = engine.fit(1, [0, 2], start, far, phase, objective)
    engine.close()
    theirs = SequentialEngine(work, "cpu", "64-true").fit(1, [0, 2], start, far, phase, objective)
    assert_same(ours.models, theirs.models)
    assert ours.losses == theirs.losses


def test_an_error_in_a_worker_names_the_client_and_the_engine_lives_on():
    prepared, work = workload_of()
    start = take_rows(prepared.initialisation(), [0, 1, 2])
    ((phase, objective),) = prepared.experiment.phases
    engine = ParallelEngine(work, "64-true", 2)
    broken = Objective([CrossEntropy(), Broken()])
    with pytest.raises(WorkerError, match=r"(?s)client \d: .*ArithmeticError: a term of a user"):
        engine.fit(1, [0, 1, 2], start, start, phase, broken)
    again = engine.fit(1, [0, 1, 2], start, start, phase, objective)
    assert all(v.isfinite().all() for v in again.models.values())
    engine.close()


class Sleeper:
    def nap(self, models, seconds):
        time.sleep(seconds)
        return os.getpid()

    def ask_for_too_much(self, models):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 1 TB")

    def signal_me(self, models, which):
        os.kill(os.getpid(), which)
        return "alive"


def task(call, *arguments, client=0, replies=None):
    def store(reply, models):
        if replies is not None:
            replies.append(reply)

    return Task(client, 1.0, call, arguments, lambda models: None, store)


def make_pool(count=2):
    return WorkerPool(Sleeper, count, {"w": torch.zeros(3)}, models=1)


def test_a_worker_that_dies_is_named_with_its_client():
    pool = make_pool()
    with pytest.raises(
        WorkerError, match=r"client 7: its worker process ended: killed by SIGKILL: out of memory\?"
    ):
        pool.run([task("signal_me", signal.SIGKILL, client=7)])
    pool.close()


def test_a_worker_without_memory_says_so_in_one_line():
    pool = make_pool()
    with pytest.raises(WorkerError, match=r"^client 7: no memory is left \(.*\): DefaultCPUAll.*$"):
        pool.run([task("ask_for_too_much", client=7)])
    pool.close()


@pytest.mark.parametrize("which", STOPPING)
def test_workers_leave_signals_to_their_parent(which):
    pool, replies = make_pool(), []
    pool.run([task("signal_me", which, replies=replies)])
    assert replies == ["alive"]
    pool.close()


def test_workers_are_kept_and_all_of_them_work():
    pool, first, second = make_pool(), [], []
    pool.run([task("nap", 0.1, replies=first) for _ in range(4)])
    pool.run([task("nap", 0.1, replies=second) for _ in range(4)])
    assert set(first) == set(second)
    assert len(set(first)) == 2
    pool.close()
    for pid in first:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_dear_tasks_start_first():
    pool, order = make_pool(1), []
    tasks = [replace(task("nap", 0.0), client=c, cost=c) for c in (1, 3, 2)]
    tasks = [replace(t, load=partial(lambda c, _: order.append(c), t.client)) for t in tasks]
    pool.run(tasks)
    assert order == [3, 2, 1]
    pool.close()


@pytest.mark.skipif(workers.start_method(1) != "fork", reason="forks a parent to kill it")
def test_workers_die_with_their_parent():
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        pool = make_pool(3)
        pids = [worker.process.pid for worker in pool.workers]
        os.write(write, ",".join(map(str, pids)).encode())
        pool.run([task("nap", 60.0) for _ in range(3)])
        os._exit(0)
    pids = [int(pid) for pid in os.read(read, 100).split(b",")]
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    deadline = time.time() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.time() < deadline:
        time.sleep(0.05)
    stats = [Path(f"/proc/{pid}/stat") for pid in pids]
    states = [stat.read_text().split()[2] for stat in stats if stat.exists()]
    assert set(states) <= {"Z"}


def test_spawned_workers_give_the_same(monkeypatch):
    monkeypatch.setattr(workers, "start_method", lambda threads: "spawn")
    client = LocalTraining(batch_size=8, optimizer=momentum)
    changes = {"rounds": 1, "client": client}
    one = run_with(lambda work: SequentialEngine(work, "cpu", "64-true"), **changes)
    many = run_with(lambda work: ParallelEngine(work, "64-true", 1), **changes)
    assert_same(dict(one.states[-1].uploads), dict(many.states[-1].uploads))
