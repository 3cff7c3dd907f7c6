"""The W&B dashboard as code, built and checked without an account."""

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml
from helpers import SMALL_FIT
from wandb_files import stored

import cwfed
from benchmarks.__main__ import main
from benchmarks.suite import SUITE
from cwfed.sweeps.dashboard import build, published, render, stable
from cwfed.sweeps.jobs import Resolver, expand
from cwfed.sweeps.profiles import PROFILES
from cwfed.sweeps.tables import load_table
from cwfed.sweeps.tracking import column_tag, track
from cwfed.tracking.wandb_options import WandbOptions

CPU = PROFILES["cpu"]
SNAPSHOT = Path(__file__).parent / "dashboard.json"
TABLE = {
    "title": "Small",
    "source": "A book",
    "protocol_rounds": 10,
    "columns": {"tiny": {"config": "quickstart", "title": "Tiny"}},
    "rows": {
        "local": {"metric": "post_local", "title": "Local"},
        "fedavg": {"metric": "received", "title": "FedAvg"},
    },
    "paper": {"local": [None], "fedavg": [{"value": 61.5, "approx": True, "tolerance": 2}]},
}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(TABLE, sort_keys=False))
    return load_table(path)


def of_kind(value, kind):
    """Return all panels of a kind in a specification."""
    if isinstance(value, list):
        return [found for part in value for found in of_kind(part, kind)]
    if not isinstance(value, dict):
        return []
    own = [value["config"]] if value.get("viewType") == kind else []
    return own + of_kind(list(value.values()), kind)


def test_what_would_be_sent_is_as_kept(table):
    """Written anew where the environment variable CWFED_WRITE_SNAPSHOTS is set."""
    text = render(build("project", "entity", [table], CPU))
    if os.environ.get("CWFED_WRITE_SNAPSHOTS"):
        SNAPSHOT.write_text(text, encoding="utf-8")
    assert text == SNAPSHOT.read_text(encoding="utf-8")
    assert render(build("project", "entity", [table], CPU)) == text


def test_every_column_of_every_table_has_its_runs_and_the_papers_figures():
    tables = SUITE.load_tables([])
    report = json.loads(render(build("project", None, tables, CPU)))["report"]
    grids = [block for block in report["blocks"] if block["type"] == "panel-grid"]
    filters = [grid["metadata"]["runSets"][0]["filters"]["filters"] for grid in grids]
    tags = [[condition["value"] for condition in conditions] for conditions in filters]
    columns = [column_tag(t.name, column) for t in tables for column in t.columns]
    assert tags == [[[column], ["cpu"]] for column in columns]
    table = next(t for t in tables if t.name == "table2_practical")
    (text,) = [
        panel["value"]
        for grid, column in zip(grids, columns, strict=True)
        if column == "table2_practical/cifar100"
        for panel in of_kind(grid, "Markdown Panel")
    ]
    assert "| cwFedAvg (output) | received | 56.29 | ± 1 |" in text
    assert text == published(table, "cifar100")


def test_an_approximate_figure_says_so_and_a_missing_one_is_left_out(table):
    text = published(table, "tiny")
    assert "| FedAvg | received | about 61.50 | ± 2 |" in text
    assert "Local" not in text


def test_panels_show_only_what_runs_log(table, tmp_path):
    """A renamed metric would leave an empty panel, which nobody would notice here."""
    specification = json.loads(render(build("project", None, [table], CPU)))
    wandb = {"mode": "offline", "heatmaps": 1}
    cwfed.fit(
        "quickstart", rounds=1, run_dir=tmp_path / "run", logger="wandb", wandb=wandb, **SMALL_FIT
    )
    sent = stored(tmp_path / "run", tmp_path)
    logged = {name for row in sent.history for name in row}
    named = sent.summary.keys()
    lines, bars = (of_kind(specification, k) for k in ("Run History Line Plot", "Bar Chart"))
    drawn = {name for panel in lines for name in panel["metrics"]}
    assert len(drawn) > 5
    assert drawn <= logged
    assert {panel["xAxis"] for panel in lines} == {"round"} <= logged
    compared = {name for panel in bars for name in panel["metrics"]}
    assert len(compared) > 4
    assert compared <= named
    browsers = of_kind(specification, "Media Browser")
    pictures = {name for panel in browsers for name in panel["mediaKeys"]}
    assert pictures == {name for name in logged if name.startswith("heatmaps/")}
    (table_of_runs,) = specification["workspace"]["section"]["runSets"]
    columns = [name.split(":") for name in table_of_runs["runFeed"]["columnPinned"]]
    assert {name for kind, name in columns if kind == "summary"} <= named


def test_only_generated_ids_are_renamed():
    value = {"a": {"__id__": "k3x9m2q8z7a"}, "b": [{"id": "k3x9m2q8z7a"}, {"name": "accuracies1"}]}
    assert stable(value) == {
        "a": {"__id__": "id-1"},
        "b": [{"id": "id-1"}, {"name": "accuracies1"}],
    }
    # Some that the package makes up are short.
    assert stable({"__id__": "1xo4"}) == {"__id__": "id-1"}


def test_the_command_writes_without_an_account_and_says_what_saving_needs(
    table, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    path = str(tmp_path / "small.yaml")
    command = ["dashboard", path, "--project", "project", "--entity", "entity"]
    assert main([*command, "-o", str(tmp_path / "out.json")]) == 0
    assert (tmp_path / "out.json").read_text() == render(build("project", "entity", [table], CPU))
    capsys.readouterr()
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "`wandb login`" in error
    assert "--print" in error


def test_saving_sends_workspace_and_report_to_the_accounts_entity(table, monkeypatch):
    sent = []

    class Api:
        default_entity = "me"
        client = type("Client", (), {"app_url": "https://wandb.example/"})()

        def projects(self, entity):
            return []

        def create_project(self, name, entity):
            sent.append({"created": (name, entity)})

    def execute(api, query, variables):
        sent.append(variables)
        view = {
            **{"id": "VIEW", "name": "nw", "displayName": variables["displayName"]},
            **{"spec": variables["spec"], "description": "", "createdAt": None},
            "project": {"name": variables["projectName"], "entityName": variables["entityName"]},
        }
        return {"upsertView": {"view": view, "inserted": True}}

    monkeypatch.setattr("wandb.Api", Api)
    for module in ("workspaces.internal", "reports.v2.interface"):
        monkeypatch.setattr(f"wandb_workspaces.{module}.execute_graphql", execute)
    made = build("project", None, [table], CPU)
    addresses = made.save()
    assert all("/me/project" in address for address in addresses)
    assert [view["entityName"] for view in sent if "spec" in view] == ["me", "me"]
    assert {"created": ("project", "me")} in sent


def test_without_the_package_the_extra_is_named(table, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
    monkeypatch.delitem(sys.modules, "wandb_workspaces.workspaces", raising=False)
    assert main(["dashboard", "study_digits", "--project", "p", "--print"]) == 2
    assert "cwfed[dashboard]" in capsys.readouterr().err


def test_jobs_are_tracked_by_column_and_row_under_the_same_key(table, tmp_path):
    resolver, smoke = Resolver(), PROFILES["smoke"]
    jobs = expand(table, smoke, resolver)
    other = replace(table, name="other", rows={"average": table.rows["fedavg"]})
    cells = [*jobs, *expand(other, smoke, resolver)]
    tracked = track(jobs, cells, WandbOptions(project="p", mode="offline"))
    assert [job.key for job in tracked] == [job.key for job in jobs]
    columns = {"local": ["small/tiny"], "fedavg": ["small/tiny", "other/tiny"]}
    for job in tracked:
        assert job.config["logger"] == "wandb"
        options = WandbOptions(**job.config["wandb"])
        assert asdict(options) == job.config["wandb"]
        assert (options.project, options.mode) == ("p", "offline")
        assert (options.group, options.job_type) == ("small/tiny", job.row)
        assert (options.name, options.tags) == (job.label, ["smoke", *columns[job.row]])
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(dict(tracked[0].config)))
    resolved, _ = resolver.resolve(["--config", str(path)])
    assert resolved["wandb"] == tracked[0].config["wandb"]


def test_options_of_wandb_without_a_project_are_a_mistake(tmp_path, capsys):
    runs = str(tmp_path / "runs")
    assert main(["run", "study_digits", "--runs", runs, "--wandb.mode", "offline"]) == 2
    assert "--wandb" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
