"""Reports: figures, verdicts and formats, from lines and numbers written by hand."""

import csv
from dataclasses import replace

import pytest
import yaml
from ledger_lines import make_line

from cwfed.report.published import Tolerance
from cwfed.sweeps.curves import mean_curve, plot_column
from cwfed.sweeps.formats import latex, markdown, to_csv
from cwfed.sweeps.summary import judge, remarks, sections
from cwfed.sweeps.tables import Published, load_table

TABLE = {
    "title": "Hand & made",
    "source": "a book",
    "protocol_rounds": 4,
    "tolerance": 1.0,
    "columns": {"one": {"config": "quickstart", "title": "One_column"}},
    "rows": {
        "a": {"metric": "received", "title": "A"},
        "b": {"metric": "post_local", "title": "B"},
        "c": {"metric": "both", "title": "C"},
        "d": {"metric": "received", "title": "D"},
    },
    "paper": {
        "a": [61.0],
        "b": [{"value": 55, "approx": True, "tolerance": 3}],
        "c": [None],
        "d": [10.0],
    },
    "sibling": {"source": "others", "rounds": 2000, "values": {"a": [58.5]}},
    "notes": ["A note."],
}
CELLS = {("a", "one"): "A", ("b", "one"): "B", ("c", "one"): "C", ("d", "one"): "D"}
LINES = [
    make_line("A", [0.1, 0.2, 0.60, 0.5, 0.4], seed=0),
    make_line("A", [0.1, 0.2, 0.62, 0.5, 0.4], seed=1),
    make_line("B", [0.1, 0.2, 0.3, 0.4, 0.5], [None, 0.4, 0.5, 0.5, 0.50]),
    make_line("C", [0.1, 0.2, 0.3, 0.4, 0.5], [None, 0.7, 0.6, 0.6, 0.60]),
    make_line("A", [0.1, 0.25, 0.24], [None, 0.45, 0.41]),
    make_line("B", [0.1, 0.35, 0.36], [None, 0.38, 0.39]),
]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "hand.yaml"
    path.write_text(yaml.safe_dump(TABLE, sort_keys=False))
    return load_table(path)


@pytest.fixture
def found(table):
    return sections(table, CELLS, LINES, generated=False)


@pytest.mark.parametrize(
    ("mean", "verdict"),
    [(61.0, "reproduced"), (62.0, "reproduced"), (60.0, "reproduced"), (62.01, "near"),
     (59.0, "near"), (63.0, "near"), (63.01, "off"), (58.9, "off"), (None, "missing")],
)  # fmt: skip
def test_verdicts(mean, verdict):
    assert judge(mean, Published(61.0, Tolerance(1.0)), scaled=False) == verdict


def test_what_is_scaled_or_unpublished_is_not_judged():
    assert judge(61.0, Published(61.0, Tolerance(1.0)), scaled=True) == "scaled"
    assert judge(61.0, Published(None, Tolerance(1.0)), scaled=False) == "n/a"
    assert judge(None, Published(61.0, Tolerance(1.0)), scaled=True) == "missing"


def test_the_full_protocol_and_scaled_runs_are_kept_apart(found):
    full, scaled = found
    assert (full.rounds, full.scaled, full.label) == (4, False, "4 rounds")
    assert (scaled.rounds, scaled.scaled, scaled.label) == (2, True, "2 of 4 rounds")
    entries = {(e.row.name, e.metric): e for e in full.entries}
    assert set(entries) == {
        ("a", "received"),
        ("b", "post_local"),
        ("c", "received"),
        ("c", "post_local"),
        ("d", "received"),
    }
    a = entries["a", "received"]
    assert a.values == pytest.approx((60.0, 62.0))
    # Two values two apart: mean 61, sample standard deviation the square root of two.
    assert a.mean == pytest.approx(61.0)
    assert a.std == pytest.approx(2**0.5)
    assert a.verdict == "reproduced"
    assert entries["b", "post_local"].verdict == "near"
    assert entries["b", "post_local"].difference == pytest.approx(-5.0)
    assert entries["c", "received"].verdict == "n/a"
    assert entries["d", "received"].verdict == "missing"


def test_the_best_on_the_shared_seeds_leads(table):
    def leaders(lines):
        full = sections(table, CELLS, lines, generated=False)[0]
        return [(e.row.name, e.metric) for e in full.entries if e.leads], bool(full.note)

    first = [line for line in LINES if line["seed"] == 0]
    assert leaders(first) == ([("c", "post_local")], False)
    # A second seed of one of them, however good, is on a partition that the others have not seen.
    assert leaders(LINES) == ([("c", "post_local")], True)
    second = make_line("A", [0.1, 0.2, 0.99, 0.9, 0.9], seed=1)
    assert leaders([*first, second]) == ([("c", "post_local")], True)
    # One that has no seed with the others keeps no mark from them, and is named.
    assert leaders([*first[1:], second]) == ([("c", "post_local")], True)
    apart = sections(table, CELLS, [*first[1:], second], generated=False)[0].note
    assert apart.endswith("One_column: on seed 0 (not ranked: A has seed 1).")
    full = sections(table, CELLS, LINES, generated=False)[0]
    note = "Bold: the best of the methods that can be compared. One"
    assert note in markdown(table, [full], [], {})
    assert note in latex([full])
    assert note not in latex([sections(table, CELLS, first, generated=False)[0]])


def test_one_method_with_fewer_seeds_leaves_the_others_theirs(table):
    whole = [
        make_line(cell, [0.1, 0.2, best], [None, 0.2, 0.1], seed=seed)
        for cell, best in (("A", 0.5), ("B", 0.6), ("C", 0.7))
        for seed in range(3)
    ]
    late = make_line("D", [0.1, 0.2, 0.9], [None, 0.3, 0.1])
    _, scaled = sections(table, CELLS, [*whole, late], generated=False)
    leaders = [(e.row.name, e.metric) for e in scaled.entries if e.leads]
    assert ("c", "received") in leaders
    assert not any(row == "d" for row, _ in leaders)
    assert "One_column, received: on seeds 0, 1, 2 (not ranked: D has seed 0)" in scaled.note
    assert scaled.note in markdown(table, [scaled], [], {})


def test_scaled_sections_show_both_metrics_and_rank_within_one(found):
    scaled = found[1]
    shown = {(e.row.name, e.metric): (e.mean, e.leads) for e in scaled.entries if e.values}
    assert shown == {
        ("a", "received"): (25.0, False),
        ("a", "post_local"): (45.0, True),
        ("b", "received"): (36.0, True),
        ("b", "post_local"): (39.0, False),
    }
    assert {e.verdict for e in scaled.entries} == {"scaled"}


def test_one_run_is_shown_once_where_both_metrics_are(table):
    shared = {**CELLS, ("b", "one"): "A"}
    full, scaled = sections(table, shared, LINES, generated=False)
    assert {entry.row.name for entry in full.entries} == {"a", "b", "c", "d"}
    assert {entry.row.name for entry in scaled.entries} == {"a"}


def test_scaled_sections_leave_out_what_was_not_run(tmp_path):
    path = tmp_path / "two.yaml"
    columns = {name: {"config": "quickstart", "title": name} for name in ("one", "two")}
    paper = {name: [*values, 5.0] for name, values in TABLE["paper"].items()}
    raw = {**TABLE, "columns": columns, "paper": paper}
    del raw["sibling"]
    path.write_text(yaml.safe_dump(raw, sort_keys=False))
    table = load_table(path)
    cells = CELLS | {(row, "two"): f"{row} two" for row in TABLE["rows"]}
    full, scaled = sections(table, cells, LINES, generated=False)
    assert {(e.row.name, e.column.name) for e in scaled.entries} == {("a", "one"), ("b", "one")}
    assert [column.name for column in scaled.columns()] == ["one"]
    assert {(e.row.name, e.column.name) for e in full.entries} == set(cells)
    text = markdown(table, [full, scaled], [], {})
    assert text.count("### two, ") == 1
    assert latex([full, scaled]).count("emph{two}") == 1
    # The only section of generated data tells what is missing.
    generated = sections(table, cells, LINES, generated=True)[0]
    assert {(e.row.name, e.column.name) for e in generated.entries} == set(cells)


def test_generated_data_never_follow_the_protocol(table):
    (only, _) = sections(table, CELLS, LINES, generated=True)
    assert (only.scaled, only.label) == (True, "4 of 4 rounds, generated data")


def test_the_choice_of_the_table_counts(tmp_path):
    path = tmp_path / "hand.yaml"
    path.write_text(yaml.safe_dump({**TABLE, "choice": "last"}))
    full = sections(load_table(path), CELLS, LINES, generated=False)[0]
    assert full.entries[0].mean == pytest.approx(40.0)
    path.write_text(yaml.safe_dump({**TABLE, "choice": "val_selected"}))
    full = sections(load_table(path), CELLS, LINES, generated=False)[0]
    assert {e.verdict for e in full.entries} == {"missing"}


def test_markdown(table, found):
    text = markdown(table, found, ["A remark."], {found[0]: ["curve.png"]})
    lines = text.splitlines()
    full = lines.index("### One_column, 4 rounds")
    assert lines[full + 2 : full + 9] == [
        "| method | scored | ours (best), 4 rounds | seeds | paper, 4 rounds | difference "
        "| verdict | sibling protocol, 2,000 rounds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| A | received | 61.00 ± 1.41 | 2 | 61.00 | +0.00 | reproduced | 58.50 |",
        "| B | post-local | 50.00 | 1 | ≈ 55 | −5.00 | near | n/a |",
        "| C | received | 50.00 | 1 | n/a | n/a | n/a | n/a |",
        "| C | post-local | **70.00** | 1 | n/a | n/a | n/a | n/a |",
        "| D | received | – | 0 | 10.00 | n/a | missing | n/a |",
    ]
    scaled = lines.index("### One_column, 2 of 4 rounds")
    assert lines[scaled + 2].startswith(
        "| method | scored | ours (best), 2 of 4 rounds | seeds | paper, 4 rounds | verdict |"
    )
    assert "| B | post-local | 39.00 | 1 | ≈ 55 | scaled | n/a |" in lines
    # The published figure stands beside the metric that it is read as, and no other.
    assert "| B | received | **36.00** | 1 | n/a | scaled | n/a |" in lines
    assert "![4 rounds](curve.png)" in lines
    assert lines[-1].startswith("- Seconds a round are those of the clock")
    assert lines[-5:-1] == [
        "- Published figures: a book.",
        "- Sibling protocol: others, 2,000 rounds.",
        "- A note.",
        "- A remark.",
    ]
    row = f"| A | One_column | 1 | `{LINES[1]['key'][:12]}` | `555555555555` | 0.1.0 | 2.14 "
    assert row + "| 2.00 | 3.00 | 2.0 |" in lines


def test_latex(found):
    text = latex(found)
    assert text.count(r"\begin{tabular}{llrrrrrr}") == 1
    assert text.startswith(r"% Needs \usepackage{booktabs,graphicx}")
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 2
    assert r"\caption{Hand \& made, 2 of 4 rounds}" in text
    assert r"\multicolumn{8}{l}{\emph{One\_column}} \\" in text
    assert r"B & received & \textbf{36.00} & 1 & n/a & scaled & n/a \\" in text
    assert r"B & post-local & 50.00 & 1 & $\approx$ 55 & $-$5.00 & near & n/a \\" in text
    for line in text.splitlines():
        if line.endswith(r"\\") and "multicolumn" not in line:
            assert line.count(" & ") in (6, 7)


def test_csv_links_every_number_to_its_runs(found):
    rows = list(csv.DictReader(to_csv(found).splitlines()))
    a = rows[0]
    assert (a["row"], a["rounds"], a["protocol_rounds"], a["n"]) == ("a", "4", "4", "2")
    assert (a["mean"], a["std"], a["paper"]) == ("61.0000", "1.4142", "61.0000")
    assert (a["difference"], a["verdict"], a["sibling"]) == ("0.0000", "reproduced", "58.5000")
    assert a["seeds"] == "0 1"
    assert a["config_hashes"].split() == [LINES[0]["config_hash"], LINES[1]["config_hash"]]
    assert a["partition_hashes"].split() == ["5" * 64] * 2
    assert a["versions"] == "cwfed=0.1.0 torch=2.14"
    scaled = [row for row in rows if row["verdict"] == "scaled"]
    assert {row["difference"] for row in scaled} == {""}
    assert {row["rounds"] for row in scaled} == {"2"}


def test_curves(found, table, tmp_path):
    assert mean_curve(found[0].entries[0]) == (
        [0, 1, 2, 3, 4],
        pytest.approx([10, 20, 61, 50, 40]),
    )
    assert mean_curve(found[0].entries[1]) == ([1, 2, 3, 4], pytest.approx([40, 50, 50, 50]))
    path = tmp_path / "curve.png"
    assert plot_column(found[0], table.columns["one"], path)
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    empty = sections(table, CELLS, [], generated=False)[0]
    assert not plot_column(empty, table.columns["one"], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
    # Matplotlib would read this as a formula with an unknown command.
    priced = replace(found[0], table=replace(table, title=r"From $1 to \oops$"))
    assert plot_column(priced, table.columns["one"], tmp_path / "priced.png")


def test_tables_say_which_partitions_were_used(table):
    origin = {"partitioner": "ReleasedDirichlet", "seed": 1, "order": "content: by label"}
    own = {"partition": {"class_path": "cwfed.data.partitioners.Dirichlet"}}
    lines = [
        make_line("A", [0.1, 0.2, 0.60, 0.5, 0.4], partition=origin),
        make_line("B", [0.1, 0.2, 0.3], config=own),
    ]
    full, scaled = sections(table, CELLS, lines, generated=False)
    assert full.partitions == "Partition: ReleasedDirichlet, seed 1, order content: by label."
    assert scaled.partitions == "Partition: Dirichlet, drawn from the run's seed."
    both = markdown(table, [full, scaled], [], {})
    assert all(f"\n{section.partitions}\n" in both for section in (full, scaled))
    assert "4 rounds. Partition: ReleasedDirichlet, seed 1" in latex([full])
    row = next(csv.DictReader(to_csv([full]).splitlines()))
    assert row["partitions"] == "ReleasedDirichlet, seed 1, order content: by label"
    assert sections(table, CELLS, LINES, generated=False)[0].partitions == ""


def test_a_reader_is_told_of_other_partitions_and_other_configurations(table):
    assert remarks(table, CELLS, LINES) == []
    other = make_line("B", [0.1, 0.2], partition_hash="6" * 64)
    (note,) = remarks(table, CELLS, [*LINES, other])
    assert "Column one, seed 0" in note
    assert "55555555, 66666666" in note
    (note,) = remarks(table, CELLS, [*LINES, make_line("old", [0.1, 0.2])])
    assert note.startswith("1 runs of other configurations")
