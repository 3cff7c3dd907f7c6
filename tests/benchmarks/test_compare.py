from pathlib import Path

from benchmarks.compare import METHODS, main
from cwfed.cli.files import config_root

SMALL = [
    *("--config", "quickstart", "--rounds", "1", "--data", "SyntheticImages"),
    *("--data.image_size", "16", "--data.samples_per_class", "20", "--partition.num_clients", "4"),
]


def test_the_table_lists_every_method_once_and_keeps_finished_runs(tmp_path, capsys):
    command = [*SMALL, "--methods", "fedavg", "local", "-o", str(tmp_path)]
    assert main(command) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[1:]] == ["| fedavg", "| local"]
    assert rows[2].split(" | ")[5:7] == ["0.00", "0.00"]
    assert float(rows[1].split(" | ")[5]) > 0.1
    before = (tmp_path / "fedavg" / "rounds.jsonl").stat().st_mtime_ns
    assert main(command) == 0
    assert (tmp_path / "fedavg" / "rounds.jsonl").stat().st_mtime_ns == before


def test_every_named_method_is_shipped():
    shipped = {path.stem for path in Path(config_root() / "algorithm").glob("*.yaml")}
    assert set(METHODS) <= shipped


def test_a_mistake_stops_with_its_code(tmp_path):
    assert main([*SMALL, "--methods", "magic", "-o", str(tmp_path)]) == 2
