"""A W&B workspace and report for a project that holds runs of the tables, as code.

``python -m benchmarks run … --wandb PROJECT`` logs each run with the row as job type and with tags
for the profile and for each ``TABLE/COLUMN`` that the run serves; the report shows each column's
runs by these. Everything is built without an account: the package asks the server only when it
saves.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from cwfed.config.files import UsageError
from cwfed.sweeps.panels import LABELS, Panels
from cwfed.sweeps.profiles import Profile
from cwfed.sweeps.tables import Table
from cwfed.sweeps.tracking import column_tag

_SORTED_BY = "received/best_accuracy"
_COLUMNS = (_SORTED_BY, "post_local/best_accuracy", "mean_R", "bytes/total", "seconds/total")
_GENERATED = re.compile(r"[a-z0-9]{9,13}")
"""Identifiers that the package makes up to tell panels and sets of runs apart."""
_LINE = 100


@dataclass(frozen=True)
class Dashboard:
    """Workspace and report to be saved.

    Attributes:
        workspace: Panels over all runs of the project; a ``wandb_workspaces`` ``Workspace``.
        report: A section for each column of each table; a ``wandb_workspaces`` ``Report``.
    """

    workspace: Any
    report: Any

    def specification(self) -> dict[str, Any]:
        """Return what would be sent to the server, with stable names for generated ids."""
        models = {
            "workspace": self.workspace._to_model().spec,
            "report": self.report._to_model().spec,
        }
        sent = {
            name: json.loads(model.model_dump_json(by_alias=True, exclude_none=True))
            for name, model in models.items()
        }
        return stable(sent)

    def save(self) -> list[str]:
        """Save both in the account that is logged in; return their addresses.

        Every call makes a new workspace view and a new report.
        """
        import wandb

        entity = self.report.entity or wandb.Api().default_entity
        self.workspace.entity = self.report.entity = entity
        return [saved.save().url for saved in (self.workspace, self.report)]


def build(project: str, entity: str | None, tables: Sequence[Table], profile: Profile) -> Dashboard:
    """Build the dashboard of a project; nothing is sent.

    Args:
        project: The W&B project.
        entity: The user or team that it belongs to; None takes the account's default on saving.
        tables: The tables whose columns get a section each.
        profile: The profile whose runs these show.

    Raises:
        UsageError: The package ``wandb-workspaces`` is not installed.
    """
    try:
        workspaces = import_module("wandb_workspaces.workspaces")
        reports = import_module("wandb_workspaces.reports.v2")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"expected the package wandb-workspaces, which pip install 'cwfed[dashboard]' "
            f"installs: {error}"
        ) from error
    return Dashboard(
        _workspace(workspaces, reports, project, entity or ""),
        reports.Report(
            project=project,
            entity=entity or "",
            title="Class-wise federated averaging and its rivals",
            description=(
                "Test accuracies are pooled over all clients, each with its own model. Runs of the "
                f"profile {profile.name}: {profile.about}. W&B's lines and bars are means over all "
                "runs of a method, whichever seeds it has; which methods can be compared on which "
                "seeds, and who is ahead, is said by the tables of `report`."
            ),
            blocks=[*_blocks(reports, tables, profile)],
            width="fluid",
        ),
    )


def render(dashboard: Dashboard) -> str:
    """Return what would be sent as JSON."""
    return f"{_layout(dashboard.specification(), 0)}\n"


def _layout(value: Any, depth: int) -> str:
    """Lay JSON out with as much on a line as fits."""
    line = json.dumps(value, ensure_ascii=False)
    if not value or not isinstance(value, dict | list) or depth + len(line) <= _LINE:
        return line
    inner, outer = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, list):
        parts = [_layout(part, depth + 1) for part in value]
        return f"[{inner}{f',{inner}'.join(parts)}{outer}]"
    parts = [f"{json.dumps(name)}: {_layout(part, depth + 1)}" for name, part in value.items()]
    return f"{{{inner}{f',{inner}'.join(parts)}{outer}}}"


def stable(value: Any) -> Any:
    """Replace generated ids by ``id-1``, ``id-2`` and so on, in order of appearance.

    Args:
        value: Mappings, lists and plain values.
    """
    ids = {id_: f"id-{number}" for number, id_ in enumerate(dict.fromkeys(_ids(value)), 1)}

    def rename(part: Any) -> Any:
        if isinstance(part, dict):
            return {ids.get(name, name): rename(inner) for name, inner in part.items()}
        if isinstance(part, list):
            return [rename(inner) for inner in part]
        return ids.get(part, part) if isinstance(part, str) else part

    return rename(value)


def _ids(value: Any) -> Iterator[str]:
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    for name, part in parts:
        # Of the first kind all are made up, and some by chance are short.
        text = isinstance(part, str)
        if text and (name == "__id__" or (name == "id" and _GENERATED.fullmatch(part))):
            yield part
        yield from _ids(part)


def _workspace(workspaces: Any, reports: Any, project: str, entity: str) -> Any:
    metric = workspaces.Metric
    # Runs of different columns are not to be averaged: the table of runs says what is grouped.
    panels = Panels(reports, grouped=False)
    sections = {
        "Accuracy": [*panels.curves(), panels.best([*LABELS])],
        "Fairness": panels.fairness(),
        "R and loss": [panels.line("Mean R", "mean_R"), panels.line("Training loss", "train_loss")],
        "Clients left out": [panels.line("Clients left out of the round", "excluded")],
        "Cost": panels.cost(),
        "Clients": [panels.heat_maps()],
        "Comparison": [reports.RunComparer(diff_only="split")],
    }
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name="cwfed",
        sections=[
            workspaces.Section(name=name, panels=content, is_open=name != "Comparison")
            for name, content in sections.items()
        ],
        settings=workspaces.WorkspaceSettings(x_axis="round", max_runs=50),
        runset_settings=workspaces.RunsetSettings(
            groupby=[metric("Group"), metric("JobType")],
            order=[workspaces.Ordering(workspaces.Summary(_SORTED_BY), ascending=False)],
            pinned_columns=[f"summary:{name}" for name in _COLUMNS],
        ),
    )


def _blocks(reports: Any, tables: Sequence[Table], profile: Profile) -> Iterator[Any]:
    yield reports.TableOfContents()
    for table in tables:
        yield reports.H1(table.title)
        source = table.source or "No published figures"
        yield reports.P(f"{source}. Protocol: {table.protocol_rounds:,} rounds.")
        for column in table.columns.values():
            yield reports.H2(f"{table.title}: {column.title}")
            yield _grid(reports, table, column.name, profile)


def _grid(reports: Any, table: Table, column: str, profile: Profile) -> Any:
    """Return the panels of a column, with its runs by method."""
    tag = column_tag(table.name, column)
    scored = [m for m in LABELS if any(m in row.metrics for row in table.rows.values())]
    panels = Panels(reports, grouped=True)
    rows = [
        panels.curves(),
        [panels.best(scored), reports.MarkdownPanel(published(table, column))],
        panels.fairness(),
        panels.cost(),
        [panels.heat_maps()],
        [reports.RunComparer(diff_only="split")],
    ]
    runs = reports.Runset(
        # Without an entity the set is of the report's own project, which needs no look-up.
        name=f"{table.name}/{column}",
        filters=f"Tags in [{tag!r}] and Tags in [{profile.name!r}]",
        groupby=["JobType"],
        order=[reports.OrderBy(reports.SummaryMetric(_SORTED_BY))],
    )
    return reports.PanelGrid(runsets=[runs], panels=[*panels.laid_out(rows)])


def published(table: Table, column: str) -> str:
    """Return the published figures of a column as a Markdown table, in percent."""
    lines = ["| method | scored | published, % | reproduced within |", "|---|---|---|---|"]
    for name, row in table.rows.items():
        figure = table.published(name, column)
        if figure.value is None:
            continue
        value = f"{'about ' if figure.approx else ''}{figure.value:.2f}"
        scored = ", ".join(LABELS[metric] for metric in row.metrics)
        lines.append(f"| {row.title} | {scored} | {value} | ± {figure.tolerance.points:g} |")
    if len(lines) == 2:
        return "No figures are published for this column."
    return "\n".join([f"**{table.source}**, {table.protocol_rounds:,} rounds", "", *lines])
