"""A round's scalar figures by name, for curves and tables."""

from collections.abc import Mapping
from typing import Any

from cwfed.records.round_lines import METRICS


def flatten(line: Mapping[str, Any]) -> dict[str, float]:
    """Return a round's scalar figures by name, such as ``received/accuracy``."""
    figures = {name: line[name] for name in ("train_loss", "mean_R")}
    figures["excluded"] = float(len(line.get("excluded", ())))
    for metric in METRICS:
        for name in ("accuracy", "loss", "val_accuracy"):
            figures[f"{metric}/{name}"] = (line[metric] or {}).get(name)
        for name, value in ((line[metric] or {}).get("fairness") or {}).items():
            figures[f"{metric}/fairness_{name}"] = value
    figures |= {f"method/{name}": value for name, value in line["method"].items()}
    figures |= {f"bytes/{way}": float(sum(values)) for way, values in line["bytes"].items()}
    figures |= {f"seconds/{phase}": value for phase, value in line["seconds"].items()}
    return {name: value for name, value in figures.items() if value is not None}
