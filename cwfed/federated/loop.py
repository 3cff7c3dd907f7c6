"""The federated loop: a round as a sentence.

Legend: M clients, K classes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import isnan
from time import perf_counter

import torch
from torch import Tensor

from cwfed.aggregators.base import Aggregator, ServerContext
from cwfed.data.federated import Part
from cwfed.engines.base import Engine, Fitted
from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.sampler import UniformSampler
from cwfed.federated.state import FederatedState
from cwfed.functional.regularisers import weight_distribution_distance
from cwfed.functional.stacking import Bank, replace_rows
from cwfed.results import RoundRecord, Score


class FederatedLoop:
    """Runs rounds of local training and aggregation.

    Args:
        engine: Trains and scores cohorts.
        aggregator: The server side.
        server: What the server knows.
        sampler: Draws the participants.
        p_MK: Class distribution of every client's labels, ``[M, K]``, for R.
        rounds: Number of the last round.
        validation: Whether clients have a validation part to score.
        callbacks: Hooks.
    """

    def __init__(
        self,
        engine: Engine,
        aggregator: Aggregator,
        server: ServerContext,
        sampler: UniformSampler,
        p_MK: Tensor,
        rounds: int,
        *,
        validation: bool = False,
        callbacks: Sequence[LoopCallback] = (),
    ) -> None:
        aggregator.validate(server)
        self.engine = engine
        self.aggregator = aggregator
        self.server = server
        self.sampler = sampler
        self.p_MK = p_MK
        self.rounds = rounds
        self.parts: tuple[Part, ...] = ("test", "val") if validation else ("test",)
        self.callbacks = tuple(callbacks)
        self._seconds: dict[str, float] = {}

    def run(self, state: FederatedState) -> FederatedState:
        """Run the rounds that are left after the given state; return the last state."""
        for callback in self.callbacks:
            callback.on_start(self, state)
        if state.round == 0:
            state = self.score_initialisation(state)
        for round_ in range(state.round + 1, self.rounds + 1):
            participants = self.sampler.sample(round_)
            fitted = self.fit(round_, participants, state.received)
            state = self.upload(state, participants, fitted)
            state = self.score_post_local(state, participants)
            state = self.aggregate(round_, state, participants)
            self.report(state, participants, fitted)
        for callback in self.callbacks:
            callback.on_end(state)
        return state

    def initial_state(self, initialisation: Bank) -> FederatedState:
        """Return the state before the first round from a bank of equal rows."""
        server = self.aggregator.init_state(self.server)
        return FederatedState(0, initialisation, initialisation, server, {})

    def fit(self, round_: int, participants: Sequence[int], start: Bank) -> Fitted:
        """Train the participants from what they received."""
        with self._timed("fit"):
            return self.engine.fit(round_, participants, start)

    def upload(
        self, state: FederatedState, participants: Sequence[int], fitted: Fitted
    ) -> FederatedState:
        """Put the participants' models into the bank of last uploads."""
        with self._timed("aggregate"):
            uploads = replace_rows(state.uploads, participants, fitted.models)
        return replace(state, uploads=uploads)

    def score_post_local(
        self, state: FederatedState, participants: Sequence[int]
    ) -> FederatedState:
        """Score the participants right after training; the others keep their last score."""
        with self._timed("evaluate_post_local"):
            index = torch.as_tensor(participants)
            scores: dict[str, Tensor] = {
                part: state.post_local[part].index_copy(
                    0, index, self.engine.evaluate(participants, state.uploads, part)
                )
                for part in self.parts
            }
        return replace(state, post_local=scores)

    def aggregate(
        self, round_: int, state: FederatedState, participants: Sequence[int]
    ) -> FederatedState:
        """Let the server make every client's next model."""
        with self._timed("aggregate"):
            received, server = self.aggregator.aggregate(
                state.uploads, torch.as_tensor(participants), state.server, self.server
            )
        return replace(state, round=round_, received=received, server=server)

    def score_initialisation(self, state: FederatedState) -> FederatedState:
        """Report the common initialisation as round 0."""
        received = self._score_received(state)
        state = replace(state, post_local=received)
        self._emit(state, RoundRecord(0, (), received, None, None, self._mean_r(state), {}))
        return state

    def report(self, state: FederatedState, participants: Sequence[int], fitted: Fitted) -> None:
        """Score what the clients received and tell the callbacks about the round."""
        received = self._score_received(state)
        losses = [loss for loss in fitted.losses if not isnan(loss)]
        mean_loss = sum(losses) / len(losses) if losses else None
        record = RoundRecord(
            state.round,
            tuple(participants),
            received,
            state.post_local,
            mean_loss,
            self._mean_r(state),
            {},
        )
        self._emit(state, record)

    def distances_M(self, state: FederatedState) -> Tensor:
        """Return R_i of every client's last upload, float64 ``[M]``."""
        weight_MKF = state.uploads[self.server.model.head_weight].to(torch.float64)
        return weight_distribution_distance(self.p_MK, weight_MKF)

    def _mean_r(self, state: FederatedState) -> float:
        return self.distances_M(state).mean().item()

    def _score_received(self, state: FederatedState) -> Score:
        everyone = range(self.server.num_clients)
        with self._timed("evaluate_received"):
            return {
                part: self.engine.evaluate(everyone, state.received, part) for part in self.parts
            }

    def _emit(self, state: FederatedState, record: RoundRecord) -> None:
        seconds, self._seconds = self._seconds, {}
        record = replace(record, seconds=seconds)
        for callback in self.callbacks:
            callback.on_round(record, state)

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self._seconds[phase] = self._seconds.get(phase, 0.0) + perf_counter() - start
