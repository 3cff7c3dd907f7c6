"""Runs of tables on Weights & Biases: a group for each column, a job type for each row.

Cells that share a configuration share a run: its tags name the columns of all of them.
"""

from argparse import Namespace
from collections.abc import Iterable
from dataclasses import asdict, replace

from cwfed.config.files import UsageError
from cwfed.sweeps.jobs import Job
from cwfed.tracking.wandb_options import WandbOptions

_LONGEST_NAME, _LONGEST_TAG = 128, 64
"""The most that W&B takes."""


def tracking(options: Namespace) -> WandbOptions | None:
    """Return what W&B gets of all jobs; None if it gets nothing.

    Raises:
        UsageError: W&B is not asked for, but its options are.
        ValueError: W&B cannot be logged in to, which else every job would find out for itself.
    """
    if options.wandb is None:
        if options.wandb_entity or options.wandb_mode:
            raise UsageError("--wandb: expected the name of a project beside its other options")
        return None
    common = WandbOptions(
        project=options.wandb, entity=options.wandb_entity, mode=options.wandb_mode
    )
    from cwfed.tracking.wandb_login import check_login

    return replace(common, mode=check_login(common))


def track(jobs: Iterable[Job], cells: Iterable[Job], common: WandbOptions) -> list[Job]:
    """Return the jobs with W&B as their logger; their keys do not change.

    Args:
        jobs: What is to be run.
        cells: Jobs of all cells, among them those that share a run with another one.
        common: What W&B gets of all jobs.
    """
    columns: dict[str, list[str]] = {}
    for cell in cells:
        columns.setdefault(cell.key, []).append(column_tag(cell.table, cell.column))
    tracked = []
    for job in jobs:
        options = replace(
            common,
            group=f"{job.table}/{job.column}"[:_LONGEST_NAME],
            job_type=job.row[:_LONGEST_NAME],
            name=job.label[:_LONGEST_NAME],
            tags=[job.profile, *dict.fromkeys(columns[job.key])],
        )
        config = {**job.config, "logger": "wandb", "wandb": asdict(options)}
        tracked.append(replace(job, config=config))
    return tracked


def column_tag(table: str, column: str) -> str:
    """Return the tag by which the runs of a column are found."""
    return f"{table}/{column}"[:_LONGEST_TAG]
