"""Dashboards and figures that fail: the run goes on."""

import errno
import logging

import pytest
from helpers import run, small_experiment
from lightning.pytorch.loggers import Logger

from cwfed.tracking.figure_writer import FigureWriter
from cwfed.tracking.loggers import RoundLogger


class FullDisk(Logger):
    """A logger that cannot write."""

    name, version = "full", 0

    def fail(self, *_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    log_hyperparams = log_metrics = finalize = fail


@pytest.mark.parametrize("what", ["logger", "figures"])
def test_what_cannot_be_written_is_said_once_and_the_run_goes_on(what, tmp_path, caplog):
    # A file where the folder should be.
    (tmp_path / "figures").write_text("")
    names = ["a", "b", "c", "d"]
    callback = (
        RoundLogger([FullDisk()], {}) if what == "logger" else FigureWriter(tmp_path, 1, names)
    )
    with caplog.at_level(logging.WARNING, logger="cwfed"):
        assert run(small_experiment(rounds=2), [callback]).round == 2
    said = [record.message for record in caplog.records if "the run goes on" in record.message]
    assert len(said) == 1
    assert ("No space left" if what == "logger" else "figures: [Errno") in said[0]
