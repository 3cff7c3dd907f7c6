"""The short table at the end of a run."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from cwfed.records.round_lines import METRICS

_LABELS = {"received": "received", "post_local": "post-local"}
_CAPTION = "worst 10 %: mean of the lowest tenth of the clients, after the last round"


def result_table(result: Mapping[str, Any]) -> Table:
    """Return a terminal table of a run's accuracies, pooled over all clients' test sets.

    Fits 80 columns. The column of the validation choice is there only where there is one.

    Args:
        result: Content of ``result.json``.
    """
    title = (
        f"{result['algorithm']} on {result['dataset']}, {result['num_clients']} clients, "
        f"{result['rounds']} round{'s' * (result['rounds'] != 1)}, seed {result['seed']}"
    )
    excluded = result.get("excluded", {})
    left_out = ", ".join(f"{count} {reason}" for reason, count in excluded.items())
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption=f"{_CAPTION}\nleft out over all rounds: {left_out}" if left_out else _CAPTION,
        caption_justify="left",
    )
    table.add_column("Test accuracy")
    validated = any(result[metric]["val_selected"] for metric in METRICS)
    headings = ["last", "best (round)", *(["by val. (round)"] if validated else []), "worst 10 %"]
    for heading in headings:
        table.add_column(heading, justify="right")
    for metric in METRICS:
        chosen = result[metric]
        cells = [_quote(chosen["last"]), _quote(chosen["best"], with_round=True)]
        if validated:
            cells.append(_quote(chosen["val_selected"], with_round=True))
        fair = chosen["fairness"] or {}
        table.add_row(_LABELS[metric], *cells, _percent(fair.get("worst10")))
    return table


def _quote(figure: Mapping[str, Any] | None, *, with_round: bool = False) -> str:
    if figure is None:
        return "n/a"
    text = _percent(figure["accuracy"])
    return f"{text} ({figure['round']})" if with_round else text


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.2f} %"
