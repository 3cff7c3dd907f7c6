"""From a table's cells to jobs: resolved configurations with keys that name them.

A job's key is the hash that ``cwfed`` gives its resolved configuration, so it is the same on every
machine and for every way to write the same run. The cell's key leaves out rounds and seed, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cwfed.aggregators import CFL
from cwfed.config.files import UsageError, as_arguments, order_arguments
from cwfed.config.parser import absolute_paths, add_fit_options, build, make_parser, parse, plain
from cwfed.records.identity import cell_hash, config_hash
from cwfed.runs.experiment import Experiment
from cwfed.sweeps.fields import choose
from cwfed.sweeps.profiles import Profile, generated_options
from cwfed.sweeps.protocol import protocol_options
from cwfed.sweeps.tables import Table

_SET_ELSEWHERE = {
    "seed": "the table's field seeds or --seeds",
    "rounds": "the table's field rounds or --rounds",
    "run_dir": "--runs",
}
"""Options of a run that no cell can have for itself."""


@dataclass(frozen=True)
class Job:
    """A run that a cell needs, for one seed.

    Attributes:
        key: Hash of the configuration.
        cell: The same without rounds and seed.
        config: The resolved configuration, plain values.
        skip: Why the cell makes no sense, or None.
    """

    table: str
    row: str
    column: str
    profile: str
    seed: int
    rounds: int
    key: str
    cell: str
    config: Mapping[str, Any]
    skip: str | None = None

    @property
    def name(self) -> str:
        """Name of the job's files: a function of the configuration alone."""
        data = self.config["data"]["class_path"].rpartition(".")[2].lower()
        method = "".join(c if c.isalnum() else "_" for c in self.config["algorithm"]["name"])
        return f"{data}-{method}-{self.rounds}r-s{self.seed}-{self.key[:12]}"

    @property
    def label(self) -> str:
        """The job's name for people."""
        return f"{self.table}/{self.row}/{self.column} seed {self.seed}"


class Resolver:
    """Resolves options to a configuration through the parser of ``cwfed fit``."""

    def __init__(self) -> None:
        self.parser = make_parser("fit", "")
        add_fit_options(self.parser)

    def resolve(self, arguments: Sequence[str]) -> tuple[dict[str, Any], Experiment]:
        """Return the configuration that arguments stand for, and the experiment.

        Raises:
            UsageError: Something is wrong; the message names the field.
        """
        config = parse(self.parser, order_arguments(arguments))
        absolute_paths(config)
        experiment, _ = build(self.parser, config)
        return plain(self.parser, config), experiment


def expand(
    table: Table,
    profile: Profile,
    resolver: Resolver,
    *,
    data_dir: str | None = None,
    rounds: int | None = None,
    seeds: Sequence[int] | None = None,
    only: Sequence[str] | None = None,
) -> list[Job]:
    """Return a table's jobs in the order in which they should run.

    All cells of the first seed come before the second seed; within a seed every column gets the
    rows of ``first``, then the others: a stopped run leaves columns that can be compared.

    Args:
        table: The table.
        profile: How much of the protocol.
        resolver: Makes the configurations.
        data_dir: Where the data are.
        rounds: Instead of the profile's.
        seeds: Instead of the profile's.
        only: ``METHOD/COLUMN``, where ``*`` and a missing part stand for all; None takes all cells.

    Raises:
        UsageError: A cell does not resolve.
    """
    chosen = [
        (row, column) for row in _rows(table) for column in table.columns
        if _wanted(row, column, only)
    ]  # fmt: skip
    rounds = rounds or table.rounds.get(profile.name) or profile.rounds or table.protocol_rounds
    base = {"data_dir": data_dir, "rounds": rounds}
    cells = [(*cell, *_resolve_cell(table, *cell, profile, resolver, base)) for cell in chosen]
    jobs = [
        _job(table, row, column, profile, seed, config, skip)
        for seed in seeds or table.seeds.get(profile.name) or profile.seeds
        for row, column, config, skip in cells
    ]
    unique(jobs)  # refuses what one run would stand for by mistake
    return jobs


def select_shard(jobs: Iterable[Job], shard: tuple[int, int]) -> list[Job]:
    """Return the jobs of shard i of n, counted from 1: disjoint, together all, by key alone."""
    index, count = shard
    return [job for job in jobs if int(job.key, 16) % count == index - 1]


def unique(jobs: Iterable[Job]) -> list[Job]:
    """Return the first job of each key: cells that share a configuration share a run.

    Raises:
        UsageError: Two differ in nothing but the place of their data or partition.
    """
    kept: dict[str, Job] = {}
    for job in jobs:
        _refuse_twin(kept.setdefault(job.key, job), job)
    return list(kept.values())


def _refuse_twin(first: Job, second: Job) -> None:
    """Refuse two files in the place of one: keys leave out places, and would take one run for both.

    Raises:
        UsageError: The jobs share a key and read other files.
    """
    places, others = places_of(first.config), places_of(second.config)
    for name in {**places, **others}:
        if places.get(name) != others.get(name):
            raise UsageError(
                f"{name}: expected one path in cells that differ in nothing else, got "
                f"{places.get(name)} in {first.label} and {others.get(name)} in {second.label}; "
                "put them into tables of their own, each with its own --runs and --ledger"
            )


def places_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the files that a configuration's data and partition are read from, by option."""
    arguments = {name: config[name].get("init_args") or {} for name in ("data", "partition")}
    return {f"{name}.path": own["path"] for name, own in arguments.items() if own.get("path")}


def check_only(tables: Sequence[Table], only: Sequence[str] | None) -> None:
    """Raise a UsageError where a pattern names a row or column that none of the tables has."""
    rows = [*dict.fromkeys(row for table in tables for row in table.rows)]
    columns = [*dict.fromkeys(column for table in tables for column in table.columns)]
    for pattern in only or ():
        row, _, column = pattern.partition("/")
        if not pattern:
            raise UsageError("--only: expected METHOD/COLUMN, METHOD or /COLUMN, got ''")
        if row in columns and row not in rows:
            raise UsageError(f"--only: expected a method, got the column {row!r}; write /{row}")
        if row not in ("", "*"):
            choose(row, rows, "--only: method")
        if column not in ("", "*"):
            choose(column, columns, "--only: column")


def _rows(table: Table) -> list[str]:
    return [*dict.fromkeys([*table.first, *table.rows])]


def _wanted(row: str, column: str, only: Sequence[str] | None) -> bool:
    patterns = [pattern.partition("/") for pattern in only or ("*/*",)]
    return any(r in ("", "*", row) and c in ("", "*", column) for r, _, c in patterns)


def _resolve_cell(
    table: Table,
    row_name: str,
    column_name: str,
    profile: Profile,
    resolver: Resolver,
    base: Mapping[str, Any],
) -> tuple[dict[str, Any], str | None]:
    row, column = table.rows[row_name], table.columns[column_name]
    own = table.cell_options(row_name, column_name)
    where = f"{table.name}: {row_name}/{column_name}"
    for name, instead in _SET_ELSEWHERE.items():
        if name in own:
            raise UsageError(f"{where}: options: expected {name} to be given by {instead}")
    try:
        if profile.generated:
            own |= {**generated_options(column.config, own), **column.generated}
        start = ("--config", column.config, "--algorithm", row.algorithm)
        own |= {**profile.options, **base}
        config, experiment = resolver.resolve([*start, *as_arguments(own)])
        if protocol := protocol_options(profile, config):
            own = {**_without_partition(own, protocol), **protocol}
            config, experiment = resolver.resolve([*start, *as_arguments(own)])
    except UsageError as error:
        # The parser speaks of options; in a table these two are fields.
        said = str(error).replace("--config: ", f"columns.{column_name}.config: ", 1)
        said = said.replace("--algorithm: ", f"rows.{row_name}.algorithm: ", 1)
        raise UsageError(f"{where}: {said}") from error
    return config, _reason_to_skip(experiment)


def _without_partition(own: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the options of a partitioner that another one replaces."""
    replaced = "partition" in others
    return {k: v for k, v in own.items() if not (replaced and k.partition(".")[0] == "partition")}


def _reason_to_skip(experiment: Experiment) -> str | None:
    aggregator = experiment.algorithm.aggregator
    if isinstance(aggregator, CFL) and experiment.rounds <= aggregator.warm_up:
        return (
            f"CFL splits no cluster in its first {aggregator.warm_up} rounds; in "
            f"{experiment.rounds} rounds it is FedAvg"
        )
    return None


def _job(
    table: Table,
    row: str,
    column: str,
    profile: Profile,
    seed: int,
    config: Mapping[str, Any],
    skip: str | None,
) -> Job:
    own = {**config, "seed": seed}
    return Job(
        table.name, row, column, profile.name, seed, config["rounds"],
        config_hash(own), cell_hash(own), own, skip,
    )  # fmt: skip


def read_config(path: Path, resolver: Resolver) -> Experiment:
    """Return the experiment of a resolved configuration in a file."""
    return resolver.resolve(["--config", str(path)])[1]
