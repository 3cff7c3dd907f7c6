"""Tables of one's own by the installed command, and where finished runs are kept."""

from pathlib import Path

import pytest
import yaml

from benchmarks.suite import LEDGER, SUITE
from cwfed.cli import main
from cwfed.config.files import UsageError
from cwfed.sweeps.ledger import read_ledger
from cwfed.sweeps.suite import Suite

TABLE = {
    "title": "Mine",
    "columns": {"tiny": {"config": "quickstart", "options": {"partition.num_clients": 3}}},
    "rows": {"local": {"metric": "post_local"}},
}


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(yaml.safe_dump(TABLE, sort_keys=False))
    return "mine.yaml"


def test_a_table_of_ones_own_is_run_reported_and_verified_by_the_command(own, capsys):
    before = LEDGER.stat().st_mtime_ns
    run = ["tables", "run", own, "--profile", "cpu", "--rounds", "1", "--runs", "r"]
    assert main(run) == 0
    (line,) = read_ledger(Path("r") / "ledger.jsonl")
    assert (line["row"], line["column"], line["rounds"]) == ("local", "tiny", 1)
    assert LEDGER.stat().st_mtime_ns == before
    assert main(["tables", "report", own, "--runs", "r", "-o", "out"]) == 0
    assert "local" in Path("out/mine.md").read_text()
    verify = ["tables", "verify", f"{own}/local/tiny", "--ledger", "r/ledger.jsonl"]
    assert main(verify) == 0
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "cwfed tables run: error: table: expected the path of a YAML file, got none"),
        (["run", "none.yaml"], "expected the path of an existing YAML file, got 'none.yaml'"),
        (["run", "table1_pathological"], "expected the path of an existing YAML file, got 'table1"),
        (["verify", "abc"], "--ledger: expected an existing file, got runs/benchmarks/ledger"),
        (["walk"], "cwfed tables: error: argument command: invalid choice: 'walk'"),
    ],
)
def test_mistakes_are_one_line(own, arguments, said, capsys):
    assert main(["tables", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_the_list_is_of_ones_own_tables(own, capsys):
    assert main(["tables", "list", own]) == 0
    said = capsys.readouterr().out
    assert "methods: local" in said
    assert "table1_pathological" not in said
    assert main(["tables", "list"]) == 0
    assert "Tables:" not in capsys.readouterr().out


def test_runs_are_kept_beside_those_they_belong_to(own, tmp_path):
    runs = tmp_path / "runs"
    assert SUITE.ledger_of(["table1_pathological"], runs) == LEDGER
    assert SUITE.ledger_of([], runs) == LEDGER
    for names in ([own], ["table1_pathological", own]):
        assert SUITE.ledger_of(names, runs) == runs / "ledger.jsonl"
    assert Suite("cwfed tables").ledger_of([], runs) == runs / "ledger.jsonl"
    with pytest.raises(UsageError, match="table: expected"):
        SUITE.ledger_of(["nothing"], runs)
