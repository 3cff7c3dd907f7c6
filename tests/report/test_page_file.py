"""The page's file, its command, and published figures beside one's own."""

import hashlib
import json
import re

import pytest
import yaml

from cwfed.cli import main
from cwfed.cli.report import CellReader
from cwfed.report.page import find_runs, make_payload
from cwfed.report.page.html import ECHARTS, asset, render, script_json
from cwfed.report.tables import read_table

TABLE = {
    "title": "A table",
    "source": "a paper",
    "protocol_rounds": 3,
    "tolerance": 1.0,
    "options": {"data": "SyntheticImages", "data.image_size": 16, "data.samples_per_class": 20},
    "columns": {
        "few": {"config": "quickstart", "options": {"partition.num_clients": 4}},
        "many": {"config": "quickstart", "options": {"partition.num_clients": 5}},
    },
    "rows": {
        "fedavg": {"metric": "received", "options": {"model.hidden_features": 8}},
        "ours": {"algorithm": "cwfedavg", "metric": "both"},
        "local": {"metric": "post_local"},
    },
    "paper": {"fedavg": [{"value": 50, "approx": True}, 60], "local": [70, None]},
    "sibling": {"source": "others", "rounds": 2000, "values": {"fedavg": [None, 55.5]}},
}


def table(tmp_path, **changes):
    path = tmp_path / "table.yaml"
    path.write_text(yaml.safe_dump({**TABLE, **changes}))
    return path


def filled(page_runs, path):
    payload = make_payload(find_runs([page_runs]), [read_table(path)], CellReader())
    return {(row["method"], row["metric"]): row["cells"] for row in payload["tables"][0]["rows"]}


def test_published_figures_stand_beside_the_runs_of_their_cell(page_runs, tmp_path):
    paths = sorted(page_runs.glob("fedavg-*"))
    results = [json.loads((path / "result.json").read_text()) for path in paths]
    ours = sum(100 * result["received"]["best"]["accuracy"] for result in results) / 2
    close = {"fedavg": [ours + 0.9, 60]}
    cells = filled(page_runs, table(tmp_path, paper=close))
    few, many = cells["fedavg", "received"]
    (entry,) = few["ours"]
    assert entry["mean"] == pytest.approx(ours)
    assert (entry["n"], entry["rounds"], entry["scaled"]) == (2, 3, False)
    assert entry["difference"] == pytest.approx(-0.9)
    assert entry["verdict"] == "reproduced"
    # Other clients, and the full model: no run belongs to these cells.
    assert many["ours"] == []
    assert (few["sibling"], many["sibling"]) == (None, 55.5)
    assert cells["ours", "received"][0]["ours"] == cells["ours", "post_local"][0]["ours"] == []
    cells = filled(page_runs, table(tmp_path, paper={"fedavg": [ours - 1.1, 60]}))
    assert cells["fedavg", "received"][0]["ours"][0]["verdict"] == "near"


def test_runs_on_the_published_partition_stand_beside_ours_and_say_so(page_runs, tmp_path):
    published = tmp_path / "published"
    given = ["--config", page_runs / "fedavg-0" / "config.yaml", "--run_dir", published]
    given += ["--partition", "ReleasedDirichlet", "--partition.num_clients", "4"]
    assert main(["fit", *map(str, given)]) == 0
    found = find_runs([page_runs, published])
    (filled,) = make_payload(found, [read_table(table(tmp_path))], CellReader())["tables"]
    (row,) = [row for row in filled["rows"] if row["method"] == "fedavg"]
    ours, theirs = row["cells"][0]["ours"]
    assert (ours["n"], theirs["n"]) == (2, 1)
    assert ours["partition"].startswith("Dirichlet, 4 clients")
    assert theirs["partition"] == "ReleasedDirichlet, 4 clients, α 0.1, seed 1, order auto"
    # As soon as another number is asked for, it is no run of this cell.
    assert row["cells"][1]["ours"] == []


def test_fewer_rounds_than_the_protocol_are_never_judged(page_runs, tmp_path):
    cells = filled(page_runs, table(tmp_path, protocol_rounds=1000))
    (entry,) = cells["fedavg", "received"][0]["ours"]
    assert entry["scaled"]
    assert entry["verdict"] is None
    assert entry["difference"] == pytest.approx(entry["mean"] - 50)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"title": 3}, "title: expected a text, got 3"),
        ({"tolerance": float("nan")}, "tolerance: expected a number >= 0 or a mapping, got nan"),
        (
            {"paper": {"fedavg": [float("inf"), 1]}},
            "paper.fedavg.few: expected a percentage, got inf",
        ),
        ({"colums": {}}, "got 'colums'; did you mean columns?"),
    ],
)
def test_mistakes_in_a_table_are_named(changes, message, tmp_path):
    with pytest.raises(ValueError, match=re.escape(message)):
        read_table(table(tmp_path, **changes))
    assert main(["report", str(tmp_path), "--paper", str(tmp_path / "table.yaml")]) == 2


def test_data_cannot_leave_their_element():
    nasty = "</script><script>alert(1)</script>&\u2028%%SCRIPT%%"
    text = script_json({"name": nasty})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"name": nasty}
    page = render({"name": nasty})
    assert page.count("</script>") == 2
    assert page.count("%%SCRIPT%%") == 1


def test_the_library_is_the_published_one():
    content = asset(f"vendor/{ECHARTS}").encode()
    published = "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0"
    assert hashlib.sha256(content).hexdigest() == published
    assert "Apache License" in asset("vendor/LICENSE")
    assert "ECharts" in asset("vendor/NOTICE")


def test_the_command_writes_and_replaces_a_page(page_runs, tmp_path, capsys):
    page = tmp_path / "page.html"
    page.write_text("old")
    assert main(["report", str(page_runs), "-o", str(page)]) == 0
    assert "4 runs" in capsys.readouterr().out
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html"]
    data = re.search(r'id="data">(.*?)</script>', text)
    assert len(json.loads(data[1])["runs"]) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: RUN"),
        (["{tmp}/none"], "RUN: expected a run folder or a folder of runs, got"),
        (["{tmp}"], "without any"),
        (["{runs}", "-o", "{tmp}/none/page.html"], "--output: expected an existing folder"),
        (["{runs}", "-o", "{tmp}/page.txt"], "--output: expected a name ending in .html"),
        (["{runs}", "-o", "{tmp}/folder.html"], "--output: expected a file, got the folder"),
        (
            ["{runs}", "--paper", "{tmp}/none.yaml"],
            "--paper: {tmp}/none.yaml: expected a readable YAML file",
        ),
        (["{runs}", "--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_mistakes_end_with_one_line(arguments, message, page_runs, tmp_path, capsys):
    (tmp_path / "folder.html").mkdir()
    given = [text.format(tmp=tmp_path, runs=page_runs) for text in arguments]
    assert main(["report", *given]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("cwfed report: error: ")
    assert message.format(tmp=tmp_path) in err
