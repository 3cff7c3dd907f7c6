"""Names of files with NUL or in no encoding, and terminals that have letters for few of them."""

import os
import subprocess
import sys

import pytest

from cwfed.cli import main
from cwfed.config.files import UsageError
from cwfed.launch.plan import plan_fit

TINY = [
    *("--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"),
    *("--data.samples_per_class", "5", "--partition.num_clients", "2", "--rounds", "0"),
    *("--model.hidden_features", "8", "--trainer.engine", "sequential"),
]
NOT_UTF8 = os.fsdecode(b"d\xff")
NUL = "expected a text without NUL characters, got 'a\\x00b'"
PATHS = {
    "data_dir": "data_dir: {}",
    "run_dir": "run_dir: {}",
    "data.path": "data: {{class_path: Images, init_args: {{path: {}}}}}",
    "partition.path": "partition: {{class_path: FromManifest, init_args: {{path: {}}}}}",
    "algorithm.name": "algorithm: {{name: {}}}",
    "head": "head: {}",
    "wandb.project": "wandb: {{project: {}}}",
}
CHOSEN = {"data.path": ["--data", "ImageFolder"], "partition.path": ["--partition", "FromManifest"]}


def refused(*arguments):
    with pytest.raises(UsageError) as error:
        plan_fit(["--config", "quickstart", *arguments])
    return str(error.value)


@pytest.mark.parametrize("option", PATHS)
@pytest.mark.parametrize(
    ("name", "written", "said"),
    [
        ("a\0b", '"a\\0b"', NUL),
        (NOT_UTF8, None, "expected a text in UTF-8, got d\\xff"),
    ],
    ids=["nul", "not UTF-8"],
)
def test_names_that_no_file_can_have(option, name, written, said, tmp_path):
    assert refused(*CHOSEN.get(option, []), f"--{option}={name}") == f"{option}: {said}"
    if written:
        path = tmp_path / "c.yaml"
        text = PATHS[option].replace("Images", "ImageFolder").format(written)
        path.write_text(text)
        assert refused("--config", str(path)).endswith(f"{option}: {said}")


@pytest.mark.parametrize("option", ["--config", "--resume"])
def test_nul_in_what_is_read_first(option):
    assert refused(option, "a\0b") == f"{option}: {NUL}"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["report", "a\0b"], "RUN"),
        (["report", ".", "-o", "a\0b.html"], "--output"),
        (["report", ".", "--paper", "a\0b"], "--paper"),
        (["plot", "curves", "a\0b"], "RUN"),
        (["partition", "--config", "quickstart", "--save", "a\0b.json"], "save"),
        (["partition", "--config", "quickstart", "--plot", "a\0b.png"], "plot"),
        (["fit", "--algorithm", "a\0b"], "--algorithm"),
        (["fit", "--algorithm", 5000 * "a"], "--algorithm"),
    ],
)
def test_what_cannot_be_a_name_in_other_commands(arguments, field, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert f"{field}: expected" in error
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_in_no_encoding_that_relative_names_lead_to(tmp_path, monkeypatch, capsys):
    here = tmp_path / NOT_UTF8
    here.mkdir()
    monkeypatch.chdir(here)
    assert main(["fit", *TINY, "--data_dir", ".", "--run_dir", "run"]) == 2
    error = capsys.readouterr().err
    assert "data_dir: expected a text in UTF-8" in error
    assert len(error.splitlines()) == 1
    assert main(["fit", *TINY, "--run_dir", "run"]) == 0, "the folder of the run may have any name"


@pytest.mark.parametrize(
    ("terminal", "run"),
    [
        ({"PYTHONIOENCODING": "ascii:strict"}, "r\\xe9"),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "run"),
    ],
    ids=["strict", "C"],
)
def test_a_terminal_without_letters_shows_everything(terminal, run, tmp_path):
    """Accents, lambda and boxes, in names, tables and the help."""
    script = (
        "from cwfed.cli import main; import sys\n"
        f"named, tiny = ['--algorithm.name', 'm\\xe9thode', '--run_dir', '{run}'], {TINY!r}\n"
        f"codes = [main(['partition', *tiny, '--save', '{run}.json']), main(['fit', '--help']),\n"
        f"         main(['fit', *tiny, *named]), main(['plot', 'curves', '{run}']),\n"
        f"         main(['report', '{run}', 'n\\xe9'])]\n"
        "print(codes)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | terminal,
        cwd=tmp_path,
        capture_output=True,
        timeout=300,
    )
    assert b"Traceback" not in done.stderr
    assert done.stdout.splitlines()[-1] == b"[0, 0, 0, 0, 2]"
    assert f"run folder: {run}".encode() in done.stdout
    assert b"m\\xe9thode" in done.stdout + done.stderr


@pytest.mark.parametrize("option", ["model", "data", "client.optimizer"])
@pytest.mark.parametrize(
    ("part", "got"), [("3", "3"), ("1.5", "1.5"), ("true", "true"), ("[x]", "a sequence")]
)
def test_what_is_no_class_and_no_arguments(option, part, got, tmp_path):
    path, name = tmp_path / "c.yaml", option.rpartition(".")[2]
    for field, expected, text in (
        ("class_path", "the name of a class", f"{{class_path: {part}}}"),
        ("init_args", "a mapping of arguments", f"{{class_path: CNN4, init_args: {part}}}"),
    ):
        said = f"{option}.{field}: expected {expected}, got {got}"
        assert refused(f"--{option}={text}") == said
        written = f"{name}: {text}"
        path.write_text(f"client: {{{written}}}" if "." in option else written)
        assert refused("--config", str(path)) == f"{path}: {said}"
