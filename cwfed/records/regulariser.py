"""The rule of λ: with which weight a run trains with the weight distribution regulariser (WDR)."""

from collections.abc import Mapping
from typing import Any


def trained_weight(own: float | None, of_data: float | None, *, halved: bool) -> float | None:
    """Return the λ that a term trains with; None where nothing says it.

    Args:
        own: The term's own weight; None takes that of the data set.
        of_data: ``wdr_lambda``, which belongs to the data set.
        halved: ``released_code.half_lambda``.
    """
    weight = of_data if own is None else own
    if weight is None:
        return None
    return weight * 0.5 if halved else weight


def largest_weight(config: Mapping[str, Any]) -> float:
    """Return the λ of a resolved configuration; 0 where no phase uses the regulariser.

    Where phases of local training use it with different weights, the largest.
    """
    halved = bool((config.get("released_code") or {}).get("half_lambda"))
    weights = [
        trained_weight((term.get("init_args") or {}).get("weight"), config.get("wdr_lambda"),
                       halved=halved)
        for terms in _terms_by_phase(config["algorithm"])
        for term in terms
        if str(term["class_path"]).rpartition(".")[2] == "WDR"
    ]  # fmt: skip
    return max((float(weight) for weight in weights if weight is not None), default=0.0)


def _terms_by_phase(method: Mapping[str, Any]) -> list[list[Mapping[str, Any]]]:
    """Return the terms of each phase: its own, or else the method's."""
    usual = method.get("objectives") or []
    phases = method.get("phases")
    if phases is None:
        return [usual]
    own = [phase.get("objectives") for phase in phases]
    return [usual if terms is None else terms for terms in own]
