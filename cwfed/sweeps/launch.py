"""Processes that run one job each: what crashes there costs one job.

A cold process is ``python -m cwfed fit …``. A warm one is forked from a server that has imported
everything once, which saves the seconds of imports that would be most of a tiny job.
"""

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from cwfed.processes.children import Child, importable, python, start
from cwfed.processes.lock import Lock
from cwfed.processes.own_modules import forget_current_folder, safe_processes


def cold(
    arguments: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    claim: Lock | None = None,
) -> Child:
    """Start ``python -m cwfed`` with its output in a file.

    Args:
        arguments: The command and its options.
        log: File that takes the output.
        environment: Added to this process's.
        claim: A lock that lives as long as the process, even if this one is killed.
    """
    added = {**environment, "PYTHONPATH": importable()}
    inherit = claim.descriptors if claim else ()
    with log.open("ab") as output:
        return start(python("cwfed", *arguments), output, added, inherit=inherit)


def warm(
    arguments: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    claim: Lock | None = None,
) -> Child:
    """Do the same in a process that has imported everything already; arguments as for `cold`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cwfed.cli.fit", "cwfed.sweeps.launch"])
    process = context.Process(target=_work, args=(list(arguments), str(log), dict(environment)))
    # The server that forks them starts with the first, and finds there what it preloads.
    with safe_processes(PYTHONPATH=importable()):
        process.start()
    return Child(process)


def has_warm() -> bool:
    """Return whether this system can fork warm processes."""
    return "forkserver" in multiprocessing.get_all_start_methods()


def devices(environment: Mapping[str, str], count: int) -> list[str]:
    """Return the names of the GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` has them.

    Args:
        environment: The environment variables.
        count: How many GPUs PyTorch sees.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    return [str(index) for index in range(count)]


def _work(arguments: list[str], log: str, environment: dict[str, str]) -> None:
    forget_current_folder()
    os.setsid()
    os.environ.update(environment)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    # The command itself, as `python -m cwfed` runs it: fronts are above what starts them.
    sys.exit(import_module("cwfed.cli").main(arguments))
