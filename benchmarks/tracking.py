"""Runs of tables on Weights & Biases: a group for each column, a job type for each row."""

from argparse import Namespace
from collections.abc import Iterable
from dataclasses import asdict, replace

from benchmarks.jobs import Job
from cwfed.cli.files import UsageError
from cwfed.federated.loggers import WandbOptions


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
    from cwfed.federated.wandb_login import check_login

    return replace(common, mode=check_login(common))


def track(jobs: Iterable[Job], common: WandbOptions) -> list[Job]:
    """Return the jobs with W&B as their logger; their keys do not change."""
    return [
        replace(job, config={**job.config, "logger": "wandb", "wandb": asdict(_of(job, common))})
        for job in jobs
    ]


def group_of(table: str, column: str) -> str:
    """Return the group of a column's runs."""
    return f"{table}/{column}"


def _of(job: Job, common: WandbOptions) -> WandbOptions:
    return replace(
        common,
        group=group_of(job.table, job.column),
        job_type=job.row,
        name=job.label,
        tags=[job.profile],
    )
