"""Every shipped method on one small heterogeneous problem, with settings under which it acts."""

import yaml

from cwfed.config.files import config_root, order_arguments
from cwfed.config.parser import build, make_parser, parse

NAMES = sorted(path.stem for path in (config_root() / "algorithm").glob("*.yaml"))

ACTING = {
    # The shipped defaults of this method act only on longer runs.
    "cfl": [
        *("--algorithm.aggregator.warm_up", "0", "--algorithm.aggregator.eps1", "10"),
        *("--algorithm.aggregator.eps2", "0.001"),
    ],
}
NEEDS_EVERYONE = {"cfl"}
PHASES = {
    "fedavg_finetuned": [
        {"source": "received", "target": "upload"},
        {"source": "upload", "target": "personal", "epochs": 2, "plan": 1},
    ]
}


def experiment(name, tmp_path, *arguments):
    """Return the Experiment of a shipped method on the small problem."""
    files = []
    if name in PHASES:
        shipped = yaml.safe_load((config_root() / "algorithm" / f"{name}.yaml").read_text())
        shipped["algorithm"]["phases"] = PHASES[name]
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(shipped))
        files = [str(tmp_path / f"{name}.yaml")]
    parser = make_parser("fit", "")
    command = [
        *("--config", "quickstart", "--algorithm", *(files or [name])),
        *("--data", "SyntheticImages", "--data.num_classes", "4", "--data.image_size", "8"),
        *("--data.samples_per_class", "40", "--partition.num_clients", "5"),
        *("--partition.alpha", "0.3", "--model", "helpers.TinyNet", "--model.dropout", "0.2"),
        *("--client.batch_size", "8", "--rounds", "4", "--wdr_lambda", "2"),
        *("--trainer.accelerator", "cpu", "--trainer.precision", "64-true"),
        *("--trainer.engine", "sequential"),
        *ACTING.get(name, []),
        *arguments,
    ]
    made, _ = build(parser, parse(parser, order_arguments(command)))
    return made
