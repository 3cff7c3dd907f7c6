"""``cwfed fit``: a run on the terminal, from its start to its result or the word how to go on."""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cwfed.config.files import UsageError
from cwfed.config.guard import explain_os, setting_up
from cwfed.engines.parallel.workers import WorkerError
from cwfed.federated.faults import RunStopped
from cwfed.federated.stop import Stop
from cwfed.launch.exit_codes import FAILED, stop_code
from cwfed.launch.plan import FitPlan, plan_fit
from cwfed.launch.start import mend_division, start
from cwfed.messages.shortage import shortage
from cwfed.messages.terminal import Terminal
from cwfed.records.finished import read_result
from cwfed.records.names import CONFIG, RESULT
from cwfed.records.reading import reading
from cwfed.report.summary import result_table
from cwfed.tracking.progress import ProgressPrinter

log = logging.getLogger("cwfed")


def fit(arguments: Sequence[str]) -> int:
    """Train: a new run, or the rest of one."""
    stop = Stop()
    with stop.watch():
        try:
            plan = plan_fit(arguments)
            if plan.done:
                log.info("%s is finished already; nothing changed", plan.path)
                mend_division(plan)
                _show_result(plan.path)
                return 0
            return _fit(plan, stop)
        except KeyboardInterrupt:
            log.warning("%s", _stopped(stop))
            return stop_code(stop.received)


def _fit(plan: FitPlan, stop: Stop) -> int:
    path, progress = plan.path, ProgressPrinter(plan.config.algorithm.name, Terminal(stderr=True))
    try:
        loop, states = start(plan, [progress, stop])
        loop.run(states.pop())
    except UsageError:
        if not plan.resume and (path / CONFIG).is_file():
            _say_how_to_go_on(path)
        raise
    except BaseException as error:
        stop.settle()
        progress.close()
        return _end(error, path, stop)
    finally:
        progress.close()
    _show_result(path)
    return 0


def _end(error: BaseException, path: Path, stop: Stop) -> int:
    """Say why a run ended and how to go on; return the exit code."""
    said = _explain(error, stop)
    if isinstance(error, KeyboardInterrupt):
        log.warning("%s", said)
    else:
        log.error("%s", said or f"{type(error).__name__}: {error}")
    _say_how_to_go_on(path)
    if said is None:
        raise error
    return stop_code(stop.received) if isinstance(error, KeyboardInterrupt) else FAILED


def _explain(error: BaseException, stop: Stop) -> str | None:
    """Return in one line why a run ended; None for an error that needs its traceback."""
    if isinstance(error, KeyboardInterrupt):
        return _stopped(stop)
    if isinstance(error, WorkerError | RunStopped):
        return str(error)
    if lacking := shortage(error):
        return lacking
    return f"cannot go on: {explain_os(error)}" if isinstance(error, OSError) else None


def _stopped(stop: Stop) -> str:
    return f"stopped by {stop.received.name}" if stop.received else "interrupted"


def _say_how_to_go_on(path: Path) -> None:
    if (path / CONFIG).is_file():
        log.warning("finished rounds are kept; continue with: cwfed fit --resume %s", path)


def _show_result(path: Path) -> None:
    result = read_result(path)
    assert result is not None
    terminal = Terminal()
    with setting_up(), reading(path / RESULT, "the result of a run"):
        table = result_table(result)
    # A run is not a failure because nobody can read its table: a closed pipe, a full disk.
    with suppress(OSError):
        terminal.print(table)
        terminal.say(f"run folder: {path}{os.sep}")
