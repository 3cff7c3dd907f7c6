"""A round as the loop hands it to callbacks, and the line of ``rounds.jsonl`` it becomes.

Legend: M clients. Accuracies are fractions between 0 and 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from cwfed.functional.fairness import fairness, pooled_accuracy
from cwfed.records.result import finite

Score = Mapping[str, Tensor]
"""By part of the data (``test``, ``val``): float64 ``[M, 3]``, correct, samples, summed loss."""


@dataclass(frozen=True)
class RoundRecord:
    """One round, as the callbacks see it.

    Attributes:
        round: 0 for the common initialisation.
        participants: Ids of the clients that were asked to train.
        received: Scores of the models with which the clients would start the next round; None in
            a round without evaluation.
        post_local: Scores of every client's model right after its last local training; None in a
            round without evaluation, and before any training.
        train_loss: Mean local objective over the participants that trained and remained.
        mean_r: Mean over clients of R of their last uploads.
        seconds: Seconds by phase.
        bytes_up: Bytes that each participant sent, in their order.
        bytes_down: Bytes that each participant received to start the round.
        figures: The method's own figures, by name.
        mixing: Who learned from whom, ``[M, M]`` by tensor name; see `Broadcast.mixing`.
        excluded: Participants that were left out, with the reason.
    """

    round: int
    participants: tuple[int, ...]
    received: Score | None
    post_local: Score | None
    train_loss: float | None
    mean_r: float
    seconds: Mapping[str, float]
    bytes_up: tuple[int, ...] = ()
    bytes_down: tuple[int, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    mixing: Mapping[str, Tensor] = field(default_factory=dict)
    excluded: Mapping[int, str] = field(default_factory=dict)

    def to_line(self) -> dict[str, Any]:
        """Return the line of ``rounds.jsonl``; all that depends on the machine is in seconds."""
        excluded = {str(client): reason for client, reason in sorted(self.excluded.items())}
        return {
            "round": self.round,
            "participants": list(self.participants),
            **({"excluded": excluded} if excluded else {}),
            "received": summarise_score(self.received) if self.received else None,
            "post_local": summarise_score(self.post_local) if self.post_local else None,
            "train_loss": finite(self.train_loss),
            "mean_R": finite(self.mean_r),
            "method": {name: finite(value) for name, value in self.figures.items()},
            "bytes": {"up": list(map(int, self.bytes_up)), "down": list(map(int, self.bytes_down))},
            "seconds": {name: round(value, 4) for name, value in self.seconds.items()},
        }


def summarise_score(score: Score) -> dict[str, Any]:
    """Return accuracy, loss and fairness of a score, and correct predictions by client."""
    correct, total, loss = score["test"].T
    counts, totals = correct.long().tolist(), total.long().tolist()
    summary = {
        "accuracy": pooled_accuracy(counts, totals),
        "loss": finite(loss.sum().item() / total.sum().item()) if total.sum() else None,
        "fairness": fairness(counts, totals),
        "correct": counts,
    }
    if "val" in score:
        val_correct, val_total, _ = score["val"].long().T
        summary["val_accuracy"] = pooled_accuracy(val_correct.tolist(), val_total.tolist())
    return summary
