"""What a terminal is given: shown, never obeyed, and brief."""

import io
import logging
import re
import shutil
from pathlib import Path

import pytest
import yaml
from helpers import SMALL_FIT, change_json
from PIL import Image
from rich.table import Table
from rich.text import Text

import cwfed
from benchmarks.__main__ import main as benchmarks
from cwfed.cli import main
from cwfed.messages.showing import showing_messages
from cwfed.messages.terminal import Terminal
from cwfed.messages.texts import MOST_QUOTED, brief, one_line, require_name, shown
from cwfed.report.tables import read_table
from cwfed.sweeps.board import Board
from cwfed.tracking.progress import ProgressPrinter

ESC = "\x1b[2J\x1b]0;owned\x07"
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2066]")


def obeyed(text):
    return OBEYED.findall(text)


class Terminals(io.StringIO):
    """A terminal that keeps what it is sent."""

    def isatty(self):
        return True


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "finished"
    options = {**SMALL_FIT, "rounds": 1, "trainer": {"engine": "sequential"}}
    cwfed.fit("quickstart", run_dir=folder, **options)
    return folder


HOSTILE = f"x{ESC}[bold]:x: \u202eevil\u2066"


def rename(folder, target, **changes):
    """Copy a run under a name that a terminal would obey, with fields that it would, too."""
    shutil.copytree(folder, target)
    config = yaml.safe_load((target / "config.yaml").read_text())
    config["algorithm"]["name"] = HOSTILE
    (target / "config.yaml").write_text(yaml.safe_dump({**config, **changes}))
    if (target / "result.json").exists():
        change_json(target / "result.json", algorithm="\x1b[2J:x:[bold]")
    return target


def test_no_command_sends_what_a_terminal_would_obey(finished, tmp_path, capfd, monkeypatch):
    folder = rename(finished, tmp_path / f"run{ESC}:x:[red]")
    damaged = rename(finished, tmp_path / "more" / f"odd{ESC}", seed=f"a{ESC}")
    shutil.copytree(finished, damaged.parent / "good")
    other = tmp_path / f"c{ESC}:x:.yaml"
    other.write_text(yaml.safe_dump({f"roundz{ESC}": 1}))
    classes = tmp_path / "t.yaml"
    table = {"title": HOSTILE, "columns": {"a": {"config": HOSTILE}}, "rows": {"fedavg": {}}}
    classes.write_text(yaml.safe_dump(table))
    for program, arguments in (
        (main, ["fit", "--resume", folder]),
        (main, ["report", folder, "-o", tmp_path / f"page{ESC}:x:.html"]),
        (main, ["report", damaged.parent, "-o", tmp_path / "page.html"]),
        (main, ["plot", "curves", folder]),
        (main, ["plot", "curves", damaged]),
        (main, ["fit", "--config", other]),
        (main, ["fit", "--config", "quickstart", "--algorithm.name", HOSTILE]),
        (main, ["fit", "--config", "quickstart", "--model", f"a{ESC}.B"]),
        (benchmarks, ["list", classes]),
        (benchmarks, ["status", classes, "--runs", folder]),
    ):
        program([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        assert not obeyed(out + err), arguments
        assert out + err
        assert "❌" not in out + err


def test_class_names_reach_a_table_harmlessly(tmp_path, capfd, monkeypatch):
    for name in (f"cat{ESC}", ":x:", "[bold]dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(4):
            image = Image.new("RGB", (32, 32), (number, len(name), 0))
            image.save(tmp_path / "images" / name / f"{number}.png")
    options = ["--data", "ImageFolder", "--data.path", str(tmp_path / "images")]
    monkeypatch.setenv("CWFED_CACHE", str(tmp_path / "cache"))
    clients = ["--partition", "IID", "--partition.num_clients", "2"]
    assert main(["partition", "--config", "quickstart", *options, *clients]) == 0
    out, err = capfd.readouterr()
    assert not obeyed(out + err)


def test_everything_goes_through_the_terminal():
    """Nothing else in the package makes a console, and columns of bars read no markup."""
    root = Path(cwfed.__file__).parents[1]
    for path in [*(root / "cwfed").rglob("*.py"), *(root / "benchmarks").glob("*.py")]:
        text = path.read_text(encoding="utf-8")
        if path.name != "terminal.py":
            assert not re.search(r"\bConsole\(|rich\.print|Progress\(console", text), path
        for column in re.findall(r"TextColumn\(.*\)", text):
            assert "markup=False" in column or "{" not in column, path


@pytest.mark.parametrize("wide", [False, True])
def test_all_that_is_printed_is_shown(wide):
    file = Terminals() if wide else io.StringIO()
    terminal = Terminal(file=file, width=200)
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    terminal.print(table)
    terminal.print(Text(HOSTILE.replace("\x07", "")))
    terminal.print(HOSTILE)
    terminal.say(HOSTILE)
    text = file.getvalue()
    assert text.count(shown(HOSTILE)) == 5
    styles = re.sub(r"\x1b\[[\d;]*m", "", text)  # those of the table itself
    assert not obeyed(styles)
    borders = {len(line) for line in styles.splitlines() if line.startswith(("┃", "│"))}
    assert len(borders) == 1  # there is room for what is shown


def test_bars_show_names_as_they_are(monkeypatch):
    file = Terminals()
    with Board(1, Terminal(file=file, width=200, force_terminal=True)) as board:
        board.start(HOSTILE, 1)
        board.end(HOSTILE, HOSTILE, 3.0)
    assert shown(HOSTILE) in file.getvalue()
    assert ESC not in file.getvalue()
    assert "❌" not in file.getvalue()
    printer = ProgressPrinter(HOSTILE, Terminal(file=file, width=200, force_terminal=True))
    printer.console.say(HOSTILE)
    assert ESC not in file.getvalue()


def test_messages_of_libraries_to_our_log_are_shown(capfd):
    with showing_messages():
        logging.getLogger("cwfed").warning("writing in %s", HOSTILE)
    err = capfd.readouterr().err
    assert shown(HOSTILE) in err
    assert not obeyed(err)


def test_a_run_describes_itself_harmlessly(finished, tmp_path):
    run = cwfed.Run.load(rename(finished, tmp_path / f"run{ESC}"))
    assert not obeyed(repr(run))


LONG = "Q" * 5000
SPACED = "Q Q " * 1250
PLACES = [
    {"rounds": LONG},
    {"rounds": SPACED},
    {"rounds": [1, LONG]},
    {"rounds": {LONG: LONG}},
    {LONG: 1},
    {"client": {LONG: 1}},
    {"client": LONG},
    {"client": {"batch_size": SPACED}},
    {"client": {"optimizer": LONG}},
    {"client": {"optimizer": {"class_path": f"torch.optim.{LONG}"}}},
    {"model": LONG},
    {"model": f"a.{LONG}"},
    {"model": {"class_path": "cwfed.models.CNN4", "init_args": {LONG: 1}}},
    {"data": {"class_path": "Digits", "init_args": {"a": SPACED}}},
    {"data": {"class_path": "SyntheticImages", "init_args": {"channels": [LONG]}}},
    {"algorithm": {"name": LONG}},
    {"algorithm": {"name": SPACED}},
    {"algorithm": {"aggregator": {"class_path": "CwFedAvg", "init_args": {"scope": SPACED}}}},
    {"algorithm": {"aggregator": {"class_path": "CwFedAvg", "init_args": {"distribution": LONG}}}},
    {"algorithm": {"objectives": [SPACED]}},
    {"trainer": {"engine": SPACED}},
    {"trainer": {"accelerator": LONG}},
    {"wandb": {"project": SPACED}},
    {"wandb": {"tags": [SPACED]}},
    {"faults": {"policy": SPACED}},
    {"head": SPACED},
    {"logger": SPACED},
    {"data_dir": LONG},
    SPACED,
    [SPACED],
]


def longest(said):
    """Return the length of the longest quotation of what a file repeats."""
    return max((len(run) for run in re.findall(r"(?:Q\s?)+", said)), default=0)


@pytest.mark.parametrize("number", range(len(PLACES)))
@pytest.mark.parametrize("how", ["file", "python"])
def test_a_message_quotes_a_hundred_characters_of_a_file(tmp_path, capsys, number, how):
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(PLACES[number], width=10**6))
    folder = tmp_path / "run"
    arguments = ["--model.hidden_features", "8"] * ("model" not in PLACES[number])
    if how == "python":
        with pytest.raises(ValueError, match=r"\w") as caught:
            cwfed.fit("quickstart", path, run_dir=folder, progress=False)
        said = str(caught.value)
    else:
        command = ["fit", "--config", "quickstart", "--config", str(path), *arguments]
        assert main([*command, "--run_dir", str(folder)]) == 2
        said = capsys.readouterr().err
    assert longest(said) <= MOST_QUOTED, said
    assert not folder.exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.yaml", f"a: '{SPACED}'\n b: ["),
        ("config.yaml", f"{LONG}: {{"),
        ("config.yaml", f"algorithm: {SPACED}"),
        ("partition.json", f'{{"{LONG}": 1}}'),
        ("partition.json", f'{{"schema_version": "{SPACED}"}}'),
        ("rounds.jsonl", f'{{"round": "{SPACED}"}}\n{{}}'),
        ("labels.json", f'{{"classes": "{SPACED}"}}'),
        ("clients.csv", f"{LONG}\n{SPACED}"),
    ],
)
def test_so_do_those_about_a_run(finished, tmp_path, capsys, name, text):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / name).write_text(text)
    (folder / "result.json").unlink()
    for command in (["plot", "clients", folder], ["fit", "--resume", folder, "--rounds", "2"]):
        main([*map(str, command)])
        assert longest(capsys.readouterr().err) <= MOST_QUOTED


def test_so_do_those_about_tables_and_ledgers(tmp_path, capsys):
    cell = {"columns": {"a": {"config": "quickstart"}}, "rows": {"fedavg": {"metric": "received"}}}
    for changes in (
        {"title": 5, LONG: 1},
        {"title": [SPACED]},
        {"choice": SPACED},
        {"rows": {LONG: {"metric": "both"}}},
        {"rows": {"x": {"metric": SPACED}}},
        {"first": [SPACED]},
        {"paper": {LONG: [1]}},
        {"options": {LONG: SPACED}},
    ):
        path = tmp_path / "t.yaml"
        path.write_text(yaml.safe_dump({"title": "T", **cell, **changes}))
        assert benchmarks(["status", str(path), "--runs", str(tmp_path / "r")]) == 2, changes
        assert longest(capsys.readouterr().err) <= MOST_QUOTED, changes
    ledger = tmp_path / "ledger.jsonl"
    for text in (SPACED, f'{{"key": "{SPACED}"}}', f'{{"key": ["{LONG}"]}}'):
        ledger.write_text(text)
        assert benchmarks(["status", "study_digits", "--ledger", str(ledger)]) == 2
        assert longest(capsys.readouterr().err) <= MOST_QUOTED


def test_what_is_cut_and_what_stays(tmp_path):
    word, path = "Q" * 300, tmp_path / ("p" * 200)
    for text in (word, f"'{word}'", f'"{word} {word}"', f"got [{word}, 1]", f"got {{'a': {word}}}"):
        assert brief(text).count("Q") <= MOST_QUOTED
    for text in (
        f"{path}: expected a file, got '{path}'; continue with --resume {path}",
        "the run's own folder " + 60 * "is the client's " + "end",
        "expected one of " + ", ".join(f"'{n}'" for n in range(100)),
        "'" + "a" * 100 + "'",
    ):
        assert brief(text) == text
    assert one_line(f"a\n  b{ESC}") == "a b" + shown(ESC)


@pytest.mark.parametrize(
    "name", ["cwfedavg", "FedAvg (ours)", "λ=20, α 0.1", "Ünïcode", "a.b", "x" * 100]
)
def test_names(name):
    require_name("algorithm.name", name)


NO_NAMES = ["", "../../../evil", "/evil", "a/b", "a\\b", ".", "..", ".hidden", " a", "a\0", "a\nb"]
NO_NAMES += [ESC, "\u202ea", "x" * 101, "ü" * 51]


def test_a_name_that_is_no_text_is_refused():
    with pytest.raises(ValueError, match=r"algorithm\.name: expected"):
        require_name("algorithm.name", "\udcff")


@pytest.mark.parametrize("name", NO_NAMES, ids=ascii)
def test_a_name_is_a_name(tmp_path, monkeypatch, capsys, name):
    with pytest.raises(ValueError, match=r"field: expected a name: .*got "):
        require_name("field", name)
    inside = tmp_path / "a" / "b" / "c"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    (inside / "a.yaml").write_text(yaml.safe_dump({"algorithm": {"name": name}}))
    assert main(["fit", "--config", "quickstart", "--config", "a.yaml"]) == 2
    said = capsys.readouterr().err
    assert "algorithm.name: expected a " in said  # a name, or a text without NUL
    command = ["fit", "--config", "quickstart", "--config", "a.yaml", "--run_dir", "r"]
    assert main(command) == 2
    with pytest.raises(ValueError, match=r"\w"):
        cwfed.fit("quickstart", "a.yaml")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.yaml"]


def test_names_in_tables_are_names(tmp_path):
    good = {"title": "T", "columns": {"a": {"config": "c"}}, "rows": {"r": {"metric": "both"}}}
    path = tmp_path / "t.yaml"
    for name in ("../../evil", ESC, "x" * 300):
        for field in ("columns", "rows"):
            changed = {name: next(iter(good[field].values()))}
            path.write_text(yaml.safe_dump({**good, field: changed}))
            with pytest.raises(ValueError, match=rf"{field}: expected a name: .*got "):
                read_table(path)
