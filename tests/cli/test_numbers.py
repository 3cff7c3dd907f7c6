"""Numbers are decimal and finite wherever they stand; texts that look like numbers are texts."""

import math

import pytest
import yaml

from cwfed.cli import main
from cwfed.config.files import UsageError
from cwfed.launch.plan import plan_fit
from cwfed.processes.lock import unlocked_afterwards
from cwfed.records.plain_yaml import dump_yaml
from cwfed.records.reading import load_yaml

ODD = [
    *("010", "-010", "+010", "08", "00", "0010.5", "0x10", "0X1f", "0b1", "0o10", "1_000"),
    *("1_0.5", "1:30", "1:30.5", "0_1", "٣", "１０"),
]
DECIMAL = {
    **{"0": 0, "20": 20, "+5": 5, "1e-3": 1e-3, "1e3": 1e3, "1E3": 1e3, "1e+3": 1e3, ".5": 0.5},
    **{"1.": 1.0, "0.25": 0.25, "1.5e-3": 0.0015, "0e0": 0.0, "0.0": 0.0},
}
WHOLE = ["rounds", "partition.num_clients", "trainer.workers", "model.hidden_features", "seed"]
REAL = ["wdr_lambda", "partition.alpha", "client.optimizer.lr", "participation"]
NINES = "9" * 400
CLASSES = {
    "partition": "Dirichlet",
    "model": "CNN4",
    "client.optimizer": "torch.optim.SGD",
    "data": "SyntheticImages",
}


def written(option, text):
    """Return the YAML of an option."""
    *groups, name = option.split(".")
    chosen = CLASSES.get(".".join(groups))
    keys = [*groups, "init_args"] if chosen else groups
    lines = [f"{'  ' * depth}{key}:" for depth, key in enumerate(keys)]
    if chosen:
        lines.insert(len(groups), f"{'  ' * len(groups)}class_path: {chosen}")
    return "\n".join([*lines, f"{'  ' * len(keys)}{name}: {text}"])


def value(config, option):
    for key in option.split("."):
        config = config[key] if key in config else config["init_args"][key]
    return config


def planned(tmp_path, option, text, where):
    if where == "file":
        (tmp_path / "c.yaml").write_text(written(option, text), encoding="utf-8")
        arguments = ["--config", str(tmp_path / "c.yaml")]
    else:
        arguments = [f"--{option}={text}"] if where == "=" else [f"--{option}", text]
    chosen = ["--data=SyntheticImages"] if option.startswith("data.") else []
    run = f"--run_dir={tmp_path / 'run'}"
    return plan_fit(["--config", "quickstart", *chosen, run, *arguments]).config


WHERE = pytest.mark.parametrize("where", ["=", "file"])


@WHERE
@pytest.mark.parametrize(
    ("option", "text"),
    [(option, text) for option in ("rounds", "client.optimizer.lr") for text in ODD]
    + [(option, text) for option in WHOLE[1:] + REAL[:2] for text in ("010", "1_000")],
)
def test_numbers_are_decimal(tmp_path, option, text, where):
    with pytest.raises(UsageError) as refused:
        planned(tmp_path, option, text, where)
    said = str(refused.value)
    assert said.endswith(f"{option}: expected a decimal number, got {text}")
    assert (str(tmp_path / "c.yaml") in said) == (where == "file")


def test_an_option_and_its_value_may_be_two_arguments(tmp_path):
    with pytest.raises(UsageError, match=r"^rounds: expected a decimal number, got 010$"):
        planned(tmp_path, "rounds", "010", "two")
    with pytest.raises(UsageError, match=r"^client.optimizer.lr: expected a decimal .* 1_0"):
        plan_fit(["--config", "quickstart", "--client.optimizer.init_args.lr", "1_0"])


@WHERE
@pytest.mark.parametrize("text", DECIMAL)
def test_decimal_numbers_are_what_they_are(tmp_path, text, where):
    found = value(planned(tmp_path, "wdr_lambda", text, where), "wdr_lambda")
    assert found == DECIMAL[text]
    if isinstance(DECIMAL[text], int):
        assert value(planned(tmp_path, "seed", text, where), "seed") == DECIMAL[text]


@WHERE
@pytest.mark.parametrize("text", ["010", "08", "0x10", "0o10", "1:30", "1_000", "2001-01-01", "٣"])
@pytest.mark.parametrize("option", ["algorithm.name", "head"])
def test_texts_stay_texts(tmp_path, option, text, where):
    assert value(planned(tmp_path, option, text, where), option) == text


LIMITED = [
    *WHOLE,
    *REAL,
    *("evaluate_every", "val_fraction", "client.batch_size", "client.local_epochs"),
    *("client.optimizer.momentum", "trainer.threads", "trainer.eval_batch_size"),
    *("checkpoint.every", "snapshots.every", "figures.every", "faults.dropout"),
    *("faults.deadline", "faults.speed_sigma", "partition.min_samples", "wandb.heatmaps"),
    *("data.num_classes", "data.image_size", "data.samples_per_class"),
]


@WHERE
@pytest.mark.parametrize(
    ("option", "text"),
    [(option, NINES) for option in LIMITED]
    + [(o, text) for o in REAL[:3] + WHOLE[:2] for text in (f"-{NINES}", "9" * 5000, "1e400")],
)
def test_numbers_without_end_name_their_field(tmp_path, option, text, where):
    with pytest.raises(UsageError) as refused:
        planned(tmp_path, option, text, where)
    said = str(refused.value)
    assert f"{option}: expected" in said
    assert len(said) < 300
    assert "OverflowError" not in said
    assert "convert" not in said


def test_a_number_beyond_64_bits_is_refused_in_every_class(tmp_path):
    with pytest.raises(UsageError, match=r"^data.num_classes: expected a number below 2\*\*63"):
        planned(tmp_path, "data.num_classes", str(2**63), "=")
    assert planned(tmp_path, "data.num_classes", str(2**63 - 1), "=").data.init_args.num_classes


TEXTS = [
    *ODD,
    *DECIMAL,
    ".inf",
    ".nan",
    "null",
    "~",
    "yes",
    "off",
    "true",
    "2001-01-01",
    "",
    "=",
    "<<",
]


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_written_reads_back_equal(text, tmp_path):
    """By ourselves, and by every YAML 1.1 reader, whatever text it is."""
    content = {"name": text, "list": [text, {"deep": text}], text or "x": 1}
    assert load_yaml(dump_yaml(content)) == content
    assert yaml.safe_load(dump_yaml(content)) == content


@pytest.mark.parametrize("number", [1e-3, 1e-7, 1e16, 1e22, -2.5e-300, 0.1, 5.0, 10**18, -3, True])
def test_written_numbers_read_back_equal(number):
    found = load_yaml(dump_yaml({"x": number}))["x"]
    assert found == number
    assert type(found) is type(number)
    assert math.isinf(load_yaml(dump_yaml([math.inf]))[0])


def test_plain_content_is_written_as_before():
    content = {"a": [1, 2.5, None, True], "b": {"lr": 1e-05, "name": "cwfedavg", "path": "/a/x"}}
    assert dump_yaml(content) == yaml.safe_dump(content, sort_keys=False, width=100)


@pytest.mark.parametrize("name", ["1e-3", "010", "08", "0o10", "1:30", "2001-01-01", "yes"])
def test_a_run_named_like_a_number_can_be_repeated_and_resumed(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = [
        *("--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"),
        *("--data.samples_per_class", "5", "--partition.num_clients", "2", "--rounds", "0"),
        *("--model.hidden_features", "8", "--algorithm.name", name, "--run_dir", "run"),
        *("--client.optimizer.lr", "1e-3"),
    ]
    with unlocked_afterwards():
        assert main(["fit", *small]) == 0
    first = load_yaml((tmp_path / "run" / "config.yaml").read_text())
    assert first["algorithm"]["name"] == name
    assert main(["fit", "--config", "run/config.yaml", "--run_dir", "again"]) == 0
    assert load_yaml((tmp_path / "again" / "config.yaml").read_text()) == first
    with unlocked_afterwards():
        assert main(["fit", "--resume", "run", "--rounds", "1"]) == 0
    capsys.readouterr()
    assert main(["fit", *small, "--print_config"]) == 0
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out)
    assert plan_fit(["--config", "printed.yaml", "--run_dir=x"]).config.algorithm.name == name


def test_a_tag_asks_for_no_other_number(tmp_path):
    for text in ("!!int 0x10", "!!int '010'", "!!float 1:30"):
        with pytest.raises(UsageError, match="expected a decimal number"):
            planned(tmp_path, "wdr_lambda", text, "file")
