"""Processes that train clients, and the pool that keeps them busy."""

import multiprocessing
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import Any

import torch
from torch import Tensor

from cwfed.engines.parallel.shared import SharedModel
from cwfed.messages.shortage import LIMITED, shortage
from cwfed.processes.children import Child, die_with_parent, end, explain
from cwfed.processes.own_modules import OwnModules, finder_at_work, safe_processes
from cwfed.processes.signals import STOPPING


class WorkerError(RuntimeError):
    """Something went wrong in a worker; the message carries its traceback."""


@dataclass(frozen=True)
class Task:
    """A task for a worker.

    Attributes:
        client: Id, for messages.
        cost: Expected relative duration: dearer tasks start first, so that workers end together.
        call: Name of the method of the worker's servant.
        arguments: Its arguments after the models.
        load: Writes what the servant reads into the worker's shared models.
        store: Takes the servant's reply and reads what it wrote into the shared models.
    """

    client: int
    cost: float
    call: str
    arguments: tuple[Any, ...]
    load: Callable[[Sequence[Mapping[str, Tensor]]], None]
    store: Callable[[Any, Sequence[Mapping[str, Tensor]]], None]


@dataclass
class _Worker:
    process: Child
    pipe: connection.Connection
    models: list[dict[str, Tensor]]
    task: Task | None = field(default=None)


def start_method(threads: int) -> str:
    """Return how processes are started.

    Forked ones start at once and share what the parent has loaded. Where that is unsafe they are
    spawned: beside a GPU, on macOS, and with several threads, since OpenMP's do not survive a
    fork and are waited for in vain.

    Args:
        threads: CPU threads of each process.
    """
    safe = sys.platform == "linux" and not torch.cuda.is_available() and threads == 1
    return "fork" if safe else "spawn"


class WorkerPool:
    """Workers that live until the pool is closed, each with room for a few shared models.

    Args:
        make: Called in the worker, returns its servant; must be picklable where processes are
            spawned.
        count: Number of workers.
        like: The shape of a model.
        threads: CPU threads of each.
        models: How many shared models each worker has.

    Raises:
        WorkerError: The system starts no further process.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        count: int,
        like: Mapping[str, Tensor],
        threads: int = 1,
        models: int = 1,
    ) -> None:
        context: Any = multiprocessing.get_context(start_method(threads))
        self.workers: list[_Worker] = []
        try:
            for number in range(count):
                shared = [SharedModel(context, like) for _ in range(models)]
                ours, theirs = context.Pipe()
                # The finder comes first: where it arrives, it finds the classes of the others.
                arguments = (finder_at_work(), make, theirs, shared)
                process = context.Process(
                    target=_serve, args=arguments, name=f"cwfed-{number}", daemon=True
                )
                with _signals_held_back(), safe_processes():
                    _start(process)
                theirs.close()
                self.workers.append(_Worker(Child(process), ours, [s.tensors() for s in shared]))
        except BaseException:
            self.close()
            raise

    def run(self, tasks: Sequence[Task]) -> None:
        """Carry out tasks, the dearest first.

        Raises:
            WorkerError: A worker failed or died. The pool is of no use afterwards.
        """
        waiting = sorted(tasks, key=lambda task: task.cost)
        for worker in self.workers:
            self._give(worker, waiting)
        while busy := {worker.pipe: worker for worker in self.workers if worker.task}:
            for pipe in connection.wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                self._take(worker)
                self._give(worker, waiting)

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        end([worker.process for worker in self.workers])
        for worker in self.workers:
            worker.pipe.close()
        self.workers = []

    def _give(self, worker: _Worker, waiting: list[Task]) -> None:
        if not waiting:
            return
        worker.task = waiting.pop()
        worker.task.load(worker.models)
        with _explaining_death(worker):
            worker.pipe.send((worker.task.call, worker.task.arguments))

    def _take(self, worker: _Worker) -> None:
        assert worker.task is not None
        with _explaining_death(worker):
            reply = worker.pipe.recv()
        if isinstance(reply, _Failure):
            raise WorkerError(f"client {worker.task.client}: {reply.text.strip()}")
        worker.task.store(reply, worker.models)
        worker.task = None


def _start(process: Any) -> None:
    try:
        process.start()
    except BlockingIOError as error:
        raise WorkerError(f"no worker process can be started ({LIMITED}): {error}") from error


@dataclass(frozen=True)
class _Failure:
    text: str


@contextmanager
def _explaining_death(worker: _Worker) -> Iterator[None]:
    """Turn a broken pipe into a message that says what happened to the worker."""
    try:
        yield
    except (EOFError, ConnectionError):
        how = explain(worker.process.wait(5))
        client = worker.task.client if worker.task else None
        raise WorkerError(f"client {client}: its worker process ended: {how}") from None


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Start a process that is deaf to what ends a run.

    It reaches every process of a terminal or a job; the parent decides what it means.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(
    finder: OwnModules | None,
    make: Callable[[], Any],
    pipe: connection.Connection,
    shared: Sequence[SharedModel],
) -> None:
    """Do what the pool asks for, until it or its process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where signals cannot be held back
    unwatched = die_with_parent()
    models = [one.tensors() for one in shared]
    servant = None
    with suppress(EOFError, ConnectionError):
        while True:
            call, arguments = pipe.recv()
            try:
                if unwatched:
                    raise unwatched
                servant = servant or make()
                reply = getattr(servant, call)(models, *arguments)
            except Exception as error:
                reply = _Failure(shortage(error) or traceback.format_exc())
            pipe.send(reply)
