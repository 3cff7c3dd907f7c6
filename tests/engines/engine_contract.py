"""What every engine must do, as tests; for one of your own see docs/engines.md.

``class TestMine(EngineContract): engine = Mine`` in a test file holds it for the class `Mine`.
"""

from dataclasses import replace

import pytest
import torch
from engine_cases import EMPTY, assert_close, case

from cwfed.engines import Engine
from cwfed.engines.selection import BUILT_IN, make_engine
from cwfed.federated import TrainerOptions
from cwfed.federated.clients import cohort_rows
from cwfed.functional.stacking import take_rows
from cwfed.objectives import CrossEntropy, Objective, Proximal

OPTIONS = TrainerOptions(
    "cpu", "64-true", workers=2, chunk=3, kernel="grouped", memory_format="contiguous"
)
TOLERANCE = 1e-10
"""Between engines, in float64: sums may be taken in another order."""


class EngineContract:
    """The tests. They use eight clients of unequal sizes, one of them without training samples."""

    engine: type[Engine]
    """The class."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls):
        return case()

    @pytest.fixture(scope="class")
    @classmethod
    def made(cls, case):
        kind = next((name for name, ours in BUILT_IN.items() if ours is cls.engine), cls.engine)
        engine = make_engine(replace(OPTIONS, engine=kind), case.workload)
        yield engine
        engine.close()

    @pytest.mark.parametrize("clients", [range(8), [0, 3, 6], [7, 2], [4], [2, 3, 4]])
    def test_trains_as_the_reference_does(self, case, made, clients):
        ours = case.fit(made, clients)
        assert len(ours.losses) == len(clients)
        assert_close(ours, case.fit(case.sequential, clients), TOLERANCE)

    def test_a_client_is_trained_as_it_is_alone(self, case, made):
        together = case.fit(made, [1, 4, 6])
        alone = case.fit(made, [4])
        for name, value in alone.models.items():
            torch.testing.assert_close(together.models[name][1:2], value, atol=TOLERANCE, rtol=0)

    def test_rounds_differ_in_their_batches_and_nothing_else_remains(self, case, made):
        first, second = case.fit(made, round_=1), case.fit(made, round_=2)
        weight = case.workload.contract.head_weight
        assert not torch.equal(first.models[weight], second.models[weight])
        assert_close(case.fit(made, round_=1), first, TOLERANCE)

    def test_terms_pull_towards_the_anchors_of_the_same_row(self, case, made):
        clients, objective = [0, 2, 6], Objective([CrossEntropy(), Proximal(0.5)])
        rows, phase = cohort_rows(case.start, case.anchors, clients), case.phases[0][0]
        ours = made.fit(1, clients, *rows, phase, objective)
        reference = case.sequential.fit(1, clients, *rows, phase, objective)
        assert_close(ours, reference, TOLERANCE)
        free = made.fit(1, clients, rows[0], rows[0], phase, objective)
        name = case.workload.contract.head_weight
        assert not torch.equal(free.models[name], ours.models[name])

    def test_a_client_without_steps_keeps_its_model_and_has_no_loss(self, case, made):
        fitted = case.fit(made, [0, EMPTY])
        assert torch.tensor(fitted.losses).isnan().tolist() == [False, True]
        for name, value in fitted.models.items():
            assert torch.equal(value[1], case.start[name][EMPTY]), name

    @pytest.mark.parametrize("part", ["train", "test", "val"])
    @pytest.mark.parametrize("clients", [range(8), [1, 6]])
    def test_scores_are_those_of_the_reference(self, case, made, part, clients):
        rows = take_rows(case.start, clients)
        ours = made.evaluate(clients, rows, part)
        assert ours.shape == (len(clients), 3)
        assert ours.dtype == torch.float64
        reference = case.sequential.evaluate(clients, rows, part)
        torch.testing.assert_close(ours, reference, atol=TOLERANCE, rtol=0)

    @pytest.mark.parametrize("clients", [range(8), [6, EMPTY]])
    def test_class_means_are_those_of_the_reference(self, case, made, clients):
        rows = take_rows(case.start, clients)
        (means, counts), reference = (
            engine.class_means(clients, rows) for engine in (made, case.sequential)
        )
        assert torch.equal(counts, reference[1])
        torch.testing.assert_close(means, reference[0], atol=TOLERANCE, rtol=0)

    @pytest.mark.parametrize("clients", [range(8), [2, 3, 4]])
    def test_writes_into_nothing_that_it_was_given(self, case, made, clients):
        rows = cohort_rows(case.start, case.anchors, clients)
        before = [{name: value.clone() for name, value in bank.items()} for bank in rows]
        fitted = case.fit(made, clients)
        for value in fitted.models.values():
            value.fill_(7)
        made.evaluate(clients, rows[0], "test")
        made.class_means(clients, rows[0])
        for bank, kept in zip(rows, before, strict=True):
            for name, value in bank.items():
                assert torch.equal(value, kept[name]), name

    def test_can_be_used_again_after_close(self, case, made):
        before = case.fit(made, [0, 2])
        made.close()
        assert_close(case.fit(made, [0, 2]), before, TOLERANCE)
