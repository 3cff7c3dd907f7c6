"""A class that takes the place of another, and default arguments that no file can hold."""

import pytest
import yaml

import cwfed
from cwfed.cli import main
from cwfed.config.class_change import last_change
from cwfed.config.parser import plain
from cwfed.config.written import written
from cwfed.launch.plan import plan_fit
from cwfed.processes.lock import unlocked_afterwards


def read(arguments):
    """Return the configuration that a command line means, and what was said of it."""
    plan = plan_fit(["--config", "quickstart", *arguments])
    return plain(plan.parser, plan.config), list(plan.said)


def optimizer(config):
    return config["client"]["optimizer"]


@pytest.mark.parametrize(
    ("arguments", "rate", "said"),
    [
        ([], 0.05, []),
        (["--client.optimizer.lr", "0.2"], 0.2, []),
        (["--client.optimizer", "SGD"], 0.05, []),
        (["--client.optimizer", "Adam"], 0.001, ["takes its own learning rate 0.001"]),
        (["--client.optimizer=torch.optim.Adam"], 0.001, ["takes its own learning rate 0.001"]),
        (["--client.optimizer", "Adam", "--client.optimizer.lr", "0.01"], 0.01, []),
        (["--client.optimizer.lr", "0.01", "--client.optimizer", "Adam"], 0.01, []),
        (["--client.optimizer", '{"class_path": "Adam", "init_args": {"lr": 0.3}}'], 0.3, []),
    ],
)
def test_a_new_optimiser_has_a_learning_rate_of_its_own(arguments, rate, said):
    config, messages = read(arguments)
    assert optimizer(config)["init_args"]["lr"] == rate
    assert len(messages) == len(said)
    assert all(text in message for text, message in zip(said, messages, strict=True))


def test_a_file_over_a_file_is_a_change_too(tmp_path):
    path = tmp_path / "adam.yaml"
    path.write_text("client: {optimizer: {class_path: AdamW, init_args: {weight_decay: 0.1}}}")
    config, (said,) = read(["--config", str(path)])
    assert (
        optimizer(config)["init_args"] | {"lr": 0.001, "weight_decay": 0.1}
        == (optimizer(config)["init_args"])
    )
    assert said.startswith("client.optimizer: AdamW in the place of SGD takes its own learning")
    path.write_text(yaml.safe_dump({"client": {"optimizer": optimizer(config)}}))
    assert read(["--config", str(path)])[0]["client"] == config["client"]


def test_what_is_kept_and_dropped_is_said(tmp_path):
    path = tmp_path / "sgd.yaml"
    path.write_text(
        "client: {optimizer: {class_path: SGD, init_args: {momentum: 0.9, weight_decay: 0.1}}}\n"
        "partition: {class_path: Dirichlet, init_args: {num_clients: 7, alpha: 0.3}}\n"
    )
    arguments = ["--config", str(path), "--client.optimizer", "Adam", "--partition", "IID"]
    config, said = read(arguments)
    assert optimizer(config)["init_args"]["weight_decay"] == 0.1
    assert config["partition"]["init_args"] == {"num_clients": 7}
    assert said == [
        "partition: IID in the place of Dirichlet keeps num_clients 7, drops alpha",
        "client.optimizer: Adam in the place of SGD takes its own learning rate 0.001, "
        "keeps weight_decay 0.1, drops momentum",
    ]


def test_the_last_of_several_changes_counts():
    arguments = ["--config", "quickstart", "--data", "A", "--data.x", "1", "--data", "B"]
    change = last_change("data", written(arguments[2:]), None)
    assert (change.before, change.inherited, change.given) == ("A", set(), {"x"})
    assert last_change("data", written(["--data", "A", "--data", "m.A"]), None) is None


def test_values_from_python_change_a_class_likewise(tmp_path):
    small = {"rounds": 0, "progress": False, "partition.num_clients": 3}
    for number, (way, rate) in enumerate(
        [
            ({"client.optimizer": "Adam"}, 0.001),
            ({"client": {"optimizer": {"class_path": "Adam", "lr": 0.25}}}, 0.25),
            ({"client": {"optimizer": {"init_args": {"lr": 0.25}, "class_path": "Adam"}}}, 0.25),
            ({"client.optimizer.lr": 0.25, "client.optimizer": "Adam"}, 0.25),
        ]
    ):
        run = cwfed.fit("quickstart", run_dir=tmp_path / str(number), **small, **way)
        assert optimizer(run.config)["init_args"]["lr"] == rate


def test_a_run_says_it_before_its_first_round_and_a_mistake_stays_one_line(tmp_path, capsys):
    arguments = ["fit", "--config", "quickstart", "--partition", "IID", "--rounds", "0"]
    assert main([*arguments, "--run_dir", str(tmp_path / "r")]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "partition: IID in the place of Dirichlet keeps num_clients 10, drops alpha"
    assert main([*arguments, "--client.batch_size", "0"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


NETWORK = """
from functools import partial
from torch import nn

class Net(nn.Module):
    head_name = "head"

    def __init__(self, num_classes: int, in_channels: int = 1, act=partial(nn.LeakyReLU, 0.2),
                 layers=[nn.ReLU(), 1], table={"a": len}, norm=nn.BatchNorm2d, width: int = 4):
        super().__init__()
        assert not any(isinstance(x, str) for x in (act, layers[0], table["a"], norm))
        body = [nn.Conv2d(in_channels, width, 3), norm(width), act(), nn.AdaptiveAvgPool2d(1)]
        self.body = nn.Sequential(*body, nn.Flatten())
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.head(self.body(x))
"""


def test_arguments_that_no_file_can_hold_are_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net_of_objects.py").write_text(NETWORK)
    arguments = ["--config", "quickstart", "--model", "net_of_objects.Net", "--rounds", "0"]
    assert main(["fit", *arguments, "--print_config"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)["model"]
    with unlocked_afterwards():
        assert main(["fit", *arguments, "--run_dir", "run"]) == 0
    kept = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["model"]
    assert kept == shown
    assert kept["init_args"] == {"norm": "torch.nn.BatchNorm2d", "width": 4}
    assert main(["fit", "--resume", "run", "--rounds", "1"]) == 0
    assert "serialize" not in "".join(capsys.readouterr())
