"""Every shipped configuration: parsed against the real signatures and run on small data."""

import json
from pathlib import Path

import pytest
import yaml

from cwfed.cli import main
from cwfed.config.files import config_root

CONFIGS = sorted(path.stem for path in config_root().glob("*.yaml"))
ALGORITHMS = sorted(path.stem for path in (config_root() / "algorithm").glob("*.yaml"))
EXPECTED = {
    f"{data}_{kind}"
    for data in ("mnist", "cifar10", "cifar100", "tiny_imagenet", "tiny_imagenet_resnet18")
    for kind in ("pathological", "practical")
} | {"quickstart"}
SHAPES = {"mnist": (10, 1, 28), "cifar10": (10, 3, 32), "cifar100": (100, 3, 32),
          "tiny": (200, 3, 64), "quickstart": (10, 1, 28)}  # fmt: skip
LAMBDA = {"mnist": 10, "cifar10": 10, "cifar100": 1000, "tiny": 2000, "quickstart": 10}
CLASSES_PER_CLIENT = {"mnist": 2, "cifar10": 2, "cifar100": 10, "tiny": 20}

WHAT = {
    "cfl": ("CFL", []),
    "cwfedavg": ("CwFedAvg", ["WDR"]),
    "cwfedavg_all": ("CwFedAvg", ["WDR"]),
    "cwfedavg_all_no_wdr": ("CwFedAvg", []),
    "cwfedavg_no_wdr": ("CwFedAvg", []),
    "cwfedavg_true": ("CwFedAvg", []),
    "ditto": ("FedAvg", []),
    "fedamp": ("FedAMP", ["AttentionProximal"]),
    "fedamp_released": ("Local", []),
    "fedavg": ("FedAvg", []),
    "fedavg_finetuned": ("FedAvg", []),
    "fedfomo": ("FedFomo", []),
    "fednh": ("FedNH", []),
    "fedper": ("FedPer", []),
    "fedprox": ("FedAvg", ["Proximal"]),
    "fedrep": ("FedPer", []),
    "fedrep_original": ("FedPer", []),
    "feduv": ("FedAvg", ["ClassifierVariance", "EncoderUniformity"]),
    "ifca": ("IFCA", []),
    "local": ("Local", []),
}


def small_data(name, samples=None):
    classes, channels, size = SHAPES[name.split("_")[0]]
    samples = samples or {10: 120, 100: 20, 200: 4}[classes]
    return [
        *("--data", "SyntheticImages"),
        *("--data.num_classes", str(classes)),
        *("--data.channels", str(channels)),
        *("--data.image_size", str(size)),
        *("--data.samples_per_class", str(samples)),
    ]


def fit(run_dir, *arguments):
    assert main(["fit", "--run_dir", str(run_dir), *arguments]) == 0
    return json.loads((Path(run_dir) / "result.json").read_text())


def test_the_promised_files_are_there():
    assert set(CONFIGS) == EXPECTED
    assert {"cwfedavg", "fedavg", "local"} <= set(ALGORITHMS)


@pytest.mark.parametrize("name", CONFIGS)
def test_config_runs_two_rounds(name, tmp_path, capsys):
    # An image a side smaller than Tiny ImageNet's would do for the CNN, yet not show its size.
    result = fit(
        tmp_path / "run",
        *("--config", name, "--rounds", "2", "--client.batch_size", "40"),
        *small_data(name),
    )
    assert result["rounds"] == 2
    assert result["algorithm"] == "cwfedavg"
    assert result["received"]["last"]["round"] == 2
    assert 0 <= result["post_local"]["best"]["accuracy"] <= 1
    assert result["num_classes"] == SHAPES[name.split("_")[0]][0]
    assert "cwfedavg on synthetic" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(set(CONFIGS) - {"quickstart"}))
def test_config_is_the_papers_protocol(name, tmp_path, capsys):
    assert main(["fit", "--config", name, "--print_config"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    key = name.split("_")[0]
    assert config["rounds"] == 1000
    assert config["participation"] == 1.0
    assert config["wdr_lambda"] == LAMBDA[key]
    assert config["client"]["batch_size"] == 10
    assert config["client"]["local_epochs"] == 1
    optimizer = config["client"]["optimizer"]
    assert optimizer["class_path"] == "torch.optim.SGD"
    assert optimizer["init_args"]["lr"] == 0.005
    assert optimizer["init_args"]["momentum"] == optimizer["init_args"]["weight_decay"] == 0
    partition = config["partition"]["init_args"]
    assert partition["num_clients"] == 20
    if name.endswith("pathological"):
        assert partition["classes_per_client"] == CLASSES_PER_CLIENT[key]
    else:
        assert partition["alpha"] == 0.1
    assert config["model"]["class_path"].endswith("ResNet18" if "resnet" in name else "CNN4")
    assert not any(config["released_code"].values())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithm_runs_two_rounds_and_is_what_it_says(algorithm, tmp_path):
    result = fit(
        tmp_path / "run",
        *("--config", "quickstart", "--algorithm", algorithm, "--rounds", "2"),
        *("--client.batch_size", "40", *small_data("quickstart", 60)),
    )
    assert result["algorithm"] == algorithm
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    aggregator = config["algorithm"]["aggregator"]
    name = aggregator["class_path"].rpartition(".")[2]
    terms = [term["class_path"].rpartition(".")[2] for term in config["algorithm"]["objectives"]]
    assert (name, terms) == WHAT[algorithm]
    if name == "CwFedAvg":
        scope = "all" if "_all" in algorithm else "output"
        assert aggregator["init_args"]["scope"] == scope
        wanted = "true" if algorithm.endswith("_true") else "estimated"
        assert aggregator["init_args"]["distribution"] == wanted
    phases = config["algorithm"]["phases"] or [{}]
    assert len(phases) == (2 if algorithm in ("ditto", "fedrep", "fedrep_original") else 1)
    assert (config["algorithm"]["head"] is not None) == (algorithm == "fednh")
    assert config["wdr_lambda"] == 10
