import pytest

from cwfed.cli import main

FIT = [
    *("fit", "--config", "quickstart", "--data", "SyntheticImages", "--data.image_size", "16"),
    *("--data.samples_per_class", "20", "--partition.num_clients", "4", "--rounds", "3"),
    *("--model.hidden_features", "8", "--trainer.engine", "sequential", "--checkpoint.every", "3"),
]


@pytest.fixture(scope="session")
def page_runs(tmp_path_factory):
    """Runs of two methods with two seeds each; tests copy what they change."""
    folder = tmp_path_factory.mktemp("page") / "runs"
    folder.mkdir()
    for algorithm in ("cwfedavg", "fedavg"):
        for seed in ("0", "1"):
            path = folder / f"{algorithm}-{seed}"
            chosen = ["--algorithm", algorithm, "--seed", seed, "--run_dir", str(path)]
            assert main([*FIT, *chosen]) == 0
    return folder
