"""The federated loop: a round as a sentence.

Legend: M clients, K classes.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from math import isnan, nan

import torch
from torch import Tensor

from cwfed.aggregators.banks import replace_rows, take_rows
from cwfed.aggregators.base import Aggregator, ServerContext, ServerRound
from cwfed.clients.phase import TrainingPhase, check_phases, keeps_personal, makes_personal
from cwfed.data.federated import Part
from cwfed.engines.base import Engine
from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.clients import EngineClients, cohort_rows, with_server_values
from cwfed.federated.faults import Cohort, FaultModel, Reason, require_finite, without
from cwfed.federated.options import FaultOptions
from cwfed.federated.record import RoundRecord, Score
from cwfed.federated.returned import check_broadcast, check_first_state, check_state
from cwfed.federated.sampler import UniformSampler
from cwfed.federated.state import FederatedState, unscored
from cwfed.federated.stopwatch import Stopwatch
from cwfed.functional.regularisers import weight_distribution_distance
from cwfed.functional.stacking import Bank
from cwfed.objectives.base import Objective


class FederatedLoop:
    """Runs rounds of local training and aggregation.

    Args:
        engine: Trains and scores cohorts. The loop owns it: it closes it after a run.
        aggregator: The server side.
        server: What the server knows.
        sampler: Draws the participants.
        p_MK: Class distribution of every client's labels, ``[M, K]``, for R.
        rounds: Number of the last round.
        phases: Phases of local training with their objectives.
        validation: Whether clients have a validation part to score.
        evaluate_every: Rounds between evaluations; round 0 and the last always have one.
        callbacks: Hooks.
        faults: Decides whom a round goes on without; by default those whose training leaves
            numbers that are not finite.
    """

    def __init__(
        self,
        engine: Engine,
        aggregator: Aggregator,
        server: ServerContext,
        sampler: UniformSampler,
        p_MK: Tensor,
        rounds: int,
        phases: Sequence[tuple[TrainingPhase, Objective]],
        *,
        validation: bool = False,
        evaluate_every: int = 1,
        callbacks: Sequence[LoopCallback] = (),
        faults: FaultModel | None = None,
    ) -> None:
        aggregator.validate(server)
        check_phases([phase for phase, _ in phases])
        self.engine = engine
        self.aggregator = aggregator
        self.server = server
        self.sampler = sampler
        self.p_MK = p_MK
        self.rounds = rounds
        self.phases = [
            (phase, with_server_values(objective, aggregator, server))
            for phase, objective in phases
        ]
        self.parts: tuple[Part, ...] = ("test", "val") if validation else ("test",)
        self.evaluate_every = evaluate_every
        self.callbacks = tuple(callbacks)
        self.faults = faults or FaultModel(FaultOptions(), 0, server.num_samples_M)
        self._watch = Stopwatch()

    def run(self, state: FederatedState) -> FederatedState:
        """Run the rounds that are left after the given state; return the last state."""
        with ExitStack() as stack:
            for callback in reversed(self.callbacks):
                stack.enter_context(closing(callback))
            stack.enter_context(closing(self.engine))
            for callback in self.callbacks:
                callback.on_start(self, state)
            if state.round == 0:
                state = self.score_initialisation(state)
            for round_ in range(state.round + 1, self.rounds + 1):
                cohort = self.faults.cohort(round_, self.sampler.sample(round_))
                traffic = self.traffic(state, cohort)
                state, starts, cohort, losses = self.train(round_, state, cohort)
                state = self.score_post_local(round_, state, cohort.remaining)
                state, mixing = self.aggregate(round_, state, starts, cohort.remaining)
                self.report(state, cohort, losses, traffic, mixing)
            for callback in self.callbacks:
                callback.on_end(state)
            return state

    @property
    def clients(self) -> EngineClients:
        """Return what the server may ask of clients: the engine's answers."""
        return EngineClients(self.engine)

    def initial_state(self, initialisation: Bank) -> FederatedState:
        """Return the state before the first round from a bank of equal rows."""
        same = dict.fromkeys(("uploads", "received", "personal"), initialisation)
        server = self.aggregator.init_state(self.server, initialisation)
        check_first_state(self.aggregator, server)
        return FederatedState(round=0, **same, anchors={}, server=server, post_local={})

    def traffic(
        self, state: FederatedState, cohort: Cohort
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the bytes that each participant sends and receives this round.

        Who drops out or comes too late sends nothing.
        """
        ids = torch.as_tensor(cohort.participants)
        up, down = self.aggregator.traffic(ids, state.server, self.server)
        lost = torch.tensor([client in cohort.excluded for client in cohort.participants])
        return tuple(up.masked_fill(lost, 0).tolist()), tuple(down.tolist())

    def train(
        self, round_: int, state: FederatedState, cohort: Cohort
    ) -> tuple[FederatedState, Bank, Cohort, Mapping[int, float]]:
        """Let the cohort select and fit; who fails or is lost leaves nothing behind.

        What those who are lost would compute reaches nobody: it is not computed.

        Returns:
            The state, what training started from, the cohort less those that failed, and the
            losses by client.
        """
        if cohort.remaining:
            trained, starts = self.select(round_, state, cohort.remaining)
            trained, losses, failed = self.fit(round_, trained, starts, cohort.remaining)
            cohort = self.faults.exclude(round_, cohort, failed)
        if not cohort.remaining:
            self.faults.say_that_nobody_remains(round_, cohort)
            return state, state.received, cohort, {}
        if failed:
            # Only the method knows what its selection noted of a client: it is made again.
            server = self.select(round_, state, cohort.remaining)[0].server
            trained = replace(without(trained, state, sorted(failed)), server=server)
        return trained, starts, cohort, losses

    def select(
        self, round_: int, state: FederatedState, participants: Sequence[int]
    ) -> tuple[FederatedState, Bank]:
        """Let the participants choose or mix what they start from.

        Raises:
            RunStopped: The method's state is of another kind than before.
        """
        with self._watch.timed("select"):
            starts, server = self.aggregator.select(
                state.received,
                state.uploads,
                torch.as_tensor(participants),
                state.server,
                self.server,
                self.clients,
            )
        check_state(round_, self.aggregator, "select", server, state.server)
        return replace(state, server=server), starts

    def fit(
        self, round_: int, state: FederatedState, starts: Bank, participants: Sequence[int]
    ) -> tuple[FederatedState, Mapping[int, float], Mapping[int, Reason]]:
        """Train the participants phase by phase.

        The anchors have served then and leave the state: a bank less while the server makes new
        ones.

        Returns:
            The state, the losses of the upload's last phase by client, and who failed in any.
        """
        losses: dict[int, float] = {}
        failed: dict[int, Reason] = {}
        with self._watch.timed("fit"):
            for phase, objective in self.phases:
                banks = {"received": starts, "upload": state.uploads, "personal": state.personal}
                rows = cohort_rows(banks[phase.source], state.anchors or starts, participants)
                fitted = self.engine.fit(round_, participants, *rows, phase, objective)
                del rows, banks  # before the bank is made that takes in what was trained
                head = self.server.model.head_weight
                failed = self.faults.failures(participants, fitted, head) | failed
                if phase.target == "upload":
                    losses = dict(zip(participants, fitted.losses, strict=True))
                    uploads = replace_rows(state.uploads, participants, fitted.models)
                    state = replace(state, uploads=uploads)
                else:
                    personal = replace_rows(state.personal, participants, fitted.models)
                    state = replace(state, personal=personal)
                del fitted  # or it would hold its models while the next phase trains
        return replace(state, anchors={}), losses, failed

    def score_post_local(
        self, round_: int, state: FederatedState, participants: Sequence[int]
    ) -> FederatedState:
        """Score every client whose last training has no score yet, if evaluation is due.

        The bank still holds what that training left. The others keep their last score.
        """
        index = torch.as_tensor(participants, dtype=torch.int64)
        scores = {part: score.index_fill(0, index, nan) for part, score in state.post_local.items()}
        if self.evaluates(round_):
            index = unscored(scores)
            personal = makes_personal([phase for phase, _ in self.phases])
            ids = index.tolist()
            rows = take_rows(state.personal if personal else state.uploads, ids)
            with self._watch.timed("evaluate_post_local"):
                for part in self.parts:
                    fresh = self.engine.evaluate(ids, rows, part)
                    scores[part] = scores[part].index_copy(0, index, fresh)
        return replace(state, post_local=scores)

    def evaluates(self, round_: int) -> bool:
        """Return whether models are scored in a round."""
        return round_ % self.evaluate_every == 0 or round_ == self.rounds

    def aggregate(
        self, round_: int, state: FederatedState, starts: Bank, participants: Sequence[int]
    ) -> tuple[FederatedState, Mapping[str, Tensor]]:
        """Let the server make what every client receives; return who learned from whom too.

        Without participants nothing changes.

        Raises:
            RunStopped: What the server made is not finite, or of another kind than before.
        """
        if not participants:
            return replace(state, round=round_), {}
        sent = ServerRound(state.uploads, starts, torch.as_tensor(participants), self.clients)
        with self._watch.timed("aggregate"):
            broadcast, server = self.aggregator.aggregate(sent, state.server, self.server)
            check_state(round_, self.aggregator, "aggregate", server, state.server)
            check_broadcast(round_, self.aggregator, broadcast, state.uploads)
            made = {"models": broadcast.models, "anchors": broadcast.anchors or {}}
            require_finite(round_, type(self.aggregator).__name__, made, state.uploads)
        state = replace(
            state,
            round=round_,
            received=broadcast.models,
            anchors=broadcast.anchors or {},
            server=server,
        )
        return state, broadcast.mixing

    def score_initialisation(self, state: FederatedState) -> FederatedState:
        """Report the common initialisation as round 0."""
        received = self._score_received(state)
        state = replace(state, post_local=received)
        self._emit(state, RoundRecord(0, (), received, None, None, self._mean_r(state), {}))
        return state

    def report(
        self,
        state: FederatedState,
        cohort: Cohort,
        losses: Mapping[int, float],
        traffic: tuple[tuple[int, ...], tuple[int, ...]],
        mixing: Mapping[str, Tensor],
    ) -> None:
        """Score what the clients received, if that is due, and tell the callbacks of the round."""
        due = self.evaluates(state.round)
        known = [losses[client] for client in cohort.remaining if not isnan(losses[client])]
        record = RoundRecord(
            state.round,
            cohort.participants,
            self._score_received(state) if due else None,
            state.post_local if due else None,
            sum(known) / len(known) if known else None,
            self._mean_r(state),
            {},
            *traffic,
            mixing=mixing,
            excluded=cohort.excluded,
        )
        self._emit(state, record)

    def distances_M(self, state: FederatedState) -> Tensor:
        """Return R_i of every client's last upload, float64 ``[M]``."""
        weight_MKF = state.uploads[self.server.model.head_weight].to(torch.float64)
        return weight_distribution_distance(self.p_MK, weight_MKF)

    def _mean_r(self, state: FederatedState) -> float:
        return self.distances_M(state).mean().item()

    def received_models(self, state: FederatedState) -> Bank:
        """Return the models that are scored as received, ``[M, ...]`` by name."""
        # A personal model that a client carries from round to round is the client's model.
        carried = keeps_personal([phase for phase, _ in self.phases])
        return state.personal if carried else state.received

    def _score_received(self, state: FederatedState) -> Score:
        everyone = range(self.server.num_clients)
        models = self.received_models(state)
        with self._watch.timed("evaluate_received"):
            return {part: self.engine.evaluate(everyone, models, part) for part in self.parts}

    def _emit(self, state: FederatedState, record: RoundRecord) -> None:
        figures = self.aggregator.figures(state.server)
        record = replace(record, seconds=self._watch.take(), figures=figures)
        for callback in self.callbacks:
            callback.on_round(record, state)
