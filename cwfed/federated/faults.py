"""Clients that fail: lost or too late by simulation, or left by training with numbers not finite.

Legend: M clients, m clients of a cohort.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, log

import torch
from torch import Tensor

from cwfed.aggregators.banks import replace_rows
from cwfed.engines.base import Fitted
from cwfed.federated.options import FaultOptions
from cwfed.federated.state import FederatedState
from cwfed.functional.seeding import torch_generator
from cwfed.functional.stacking import Bank, finite_rows
from cwfed.records.round_lines import Reason

logger = logging.getLogger("cwfed")

_NAMED = 5  # clients in a message
_HINT = "a smaller learning rate may help"


class RunStopped(RuntimeError):
    """A run cannot go on; what is finished is kept. The message says why, in one line."""


@dataclass(frozen=True)
class Cohort:
    """The participants of a round, and what became of them.

    Attributes:
        participants: Ids of the clients that were asked to train, ascending.
        excluded: Those that are left out, with the reason. They count as clients that were not
            asked, except that they downloaded a model.
    """

    participants: tuple[int, ...]
    excluded: Mapping[int, Reason] = field(default_factory=dict)

    @property
    def remaining(self) -> list[int]:
        """Return the ids of the clients whose uploads count, ascending; there may be none."""
        return [client for client in self.participants if client not in self.excluded]


class FaultModel:
    """Decides whom a round goes on without.

    Simulated faults are a function of (seed, round, client), so that engines, resumed runs and
    methods all see the same. Client i needs the time ``t_i = s_i exp(σ z_i) exp(σ' z_ir)`` with s_i
    its number of steps, σ the spread of speeds, σ' the jitter, and z standard normal, drawn once
    for z_i and every round for z_ir. It is a straggler where ``t_i`` exceeds `deadline` times the
    median over all clients with steps of ``s_i exp(σ z_i)`` (the lower one of two).

    Args:
        options: What the user chose.
        seed: The run's seed.
        steps_M: Steps of each client's local training, all phases together, int64 ``[M]``.
    """

    def __init__(self, options: FaultOptions, seed: int, steps_M: Tensor) -> None:
        self.options = options
        self.seed = seed
        self.steps_M = steps_M
        z_M = [self._draw("speed", 0, i, normal=True) for i in range(len(steps_M))]
        # Logarithms, which no spread makes overflow; -inf for a client without steps.
        self._times_M = steps_M.to(torch.float64).log() + options.speed_sigma * torch.stack(z_M)

    def cohort(self, round_: int, participants: Sequence[int]) -> Cohort:
        """Return the participants less those that drop out or come too late."""
        excluded: dict[int, Reason] = {}
        for client in participants:
            if self._draw("dropout", round_, client).item() < self.options.dropout:
                excluded[client] = "dropout"
            elif self._late(round_, client):
                excluded[client] = "straggler"
        return Cohort(tuple(participants), excluded)

    def failures(self, clients: Sequence[int], fitted: Fitted, head: str) -> dict[int, Reason]:
        """Return whose local training has left numbers that are not finite.

        Rows of the output layer whose norms overflow count too: no class distribution can be
        estimated from them. A client without steps has no loss.

        Args:
            clients: Ids of the cohort, ``[m]``.
            fitted: Outcome of its training.
            head: Name of the output layer's weight.
        """
        squares_m = fitted.models[head].to(torch.float64).square().flatten(1).sum(1)
        whole_m = squares_m.isfinite()
        for theta_m in fitted.models.values():
            whole_m = whole_m & finite_rows(theta_m).cpu()
        failed: dict[int, Reason] = {}
        for client, loss, whole in zip(clients, fitted.losses, whole_m.tolist(), strict=True):
            if not whole:
                failed[client] = "non-finite model"
            elif not isfinite(loss) and self.steps_M[client] > 0:
                failed[client] = "non-finite loss"
        return failed

    def exclude(self, round_: int, cohort: Cohort, failed: Mapping[int, Reason]) -> Cohort:
        """Return the cohort less the clients that failed, and warn of them.

        Raises:
            RunStopped: A client failed and the user chose to stop then.
        """
        if not failed:
            return cohort
        if self.options.policy == "stop":
            raise RunStopped(
                f"round {round_}: stopped by {_who(failed)}, as faults.policy asks; {_HINT}, or "
                f"resume with --faults.policy exclude"
            )
        cohort = replace(cohort, excluded={**cohort.excluded, **failed})
        if cohort.remaining:
            logger.warning("round %d goes on without %s", round_, _who(failed))
        return cohort

    def say_that_nobody_remains(self, round_: int, cohort: Cohort) -> None:
        """Warn of a round without uploads."""
        diverged = any(reason.startswith("non-finite") for reason in cohort.excluded.values())
        logger.warning(
            "round %d changes nothing, since nobody remains of %s%s",
            round_,
            _who(cohort.excluded),
            f"; {_HINT}" if diverged else "",
        )

    def _late(self, round_: int, client: int) -> bool:
        if self.options.deadline is None or self.steps_M[client] == 0:
            return False
        jitter = self._draw("jitter", round_, client, normal=True).item()
        time = self._times_M[client].item() + self.options.jitter_sigma * jitter
        unit = self._times_M[self.steps_M > 0].median().item()
        return time > unit + log(self.options.deadline)

    def _draw(self, purpose: str, round_: int, client: int, *, normal: bool = False) -> Tensor:
        generator = torch_generator(self.seed, purpose, round_=round_, client=client)
        draw = torch.randn if normal else torch.rand
        return draw((), dtype=torch.float64, generator=generator)


def without(trained: FederatedState, before: FederatedState, ids: Sequence[int]) -> FederatedState:
    """Return a state after training in which some clients' models are those from before."""

    def restored(now: Bank, then: Bank) -> Bank:
        rows = {name: value[ids] for name, value in then.items()}
        return now if now is then else replace_rows(now, ids, rows)

    return replace(
        trained,
        uploads=restored(trained.uploads, before.uploads),
        personal=restored(trained.personal, before.personal),
    )


def require_finite(round_: int, method: str, made: Mapping[str, Bank], uploads: Bank) -> None:
    """Check that what a server hands out is finite, without a copy of it.

    Args:
        round_: Round number.
        method: Name of the server side.
        made: Banks that clients receive, by what they are.
        uploads: Bank known to be finite: tensors handed out as they came are not read again.

    Raises:
        RunStopped: Something is not.
    """
    for what, bank in made.items():
        for name, theta_M in bank.items():
            if theta_M is uploads.get(name):
                continue
            broken = (~finite_rows(theta_M)).nonzero()[:, 0].tolist()
            if broken:
                raise RunStopped(
                    f"round {round_}: {method} made {what} that are not finite out of finite "
                    f"uploads: {name} for {_clients(broken)}; expected finite numbers"
                )


def _who(excluded: Mapping[int, Reason]) -> str:
    """Return the clients and, in brackets, what became of them."""
    reasons = Counter(excluded.values())
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    return f"{_clients(sorted(excluded))} ({counts if len(reasons) > 1 else next(iter(reasons))})"


def _clients(ids: Sequence[int]) -> str:
    named = ", ".join(map(str, ids[:_NAMED]))
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"client{'s' * (len(ids) > 1)} {named}{more}"
