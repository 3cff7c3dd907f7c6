import pytest
import torch
from helpers import assert_same, small_experiment

from cwfed.engines.sequential import resolve_accelerator, seeded


def engine_and_start(**changes):
    prepared = small_experiment(**changes).prepare()
    loop, start = prepared.loop(), prepared.initialisation()
    (phase,) = loop.phases

    def fit(round_, clients, bank):
        return loop.engine.fit(round_, clients, bank, bank, *phase)

    return prepared, loop.engine, start, fit


def test_clients_do_not_see_each_other():
    """A client's result does not depend on who trained before it in the same module."""
    _, _, start, fit = engine_and_start()
    together = fit(1, [0, 1, 2], start)
    alone = fit(1, [2], start)
    assert_same(
        {n: v[2] for n, v in together.models.items()}, {n: v[0] for n, v in alone.models.items()}
    )
    assert together.losses[2] == alone.losses[0]


def test_the_start_is_not_written_to():
    _, _, start, fit = engine_and_start()
    before = {name: value.clone() for name, value in start.items()}
    fit(1, [0], start)
    assert_same(start, before)


def test_scores_count_every_sample_once_in_eval_mode():
    prepared, engine, start, _ = engine_and_start(dropout=0.5)
    scores = engine.evaluate(range(5), start, "test")
    sizes = [len(prepared.data.indices(client, "test")) for client in range(5)]
    assert scores[:, 1].tolist() == sizes
    assert torch.equal(scores, engine.evaluate(range(5), start, "test"))
    assert torch.equal(scores[[3]], engine.evaluate([3], start, "test"))


def test_a_part_without_samples_scores_zero():
    _, engine, start, _ = engine_and_start()
    assert engine.evaluate([0], start, "val").tolist() == [[0, 0, 0]]


def test_rounds_differ_in_their_batches():
    prepared, *_ = engine_and_start()
    a = torch.cat(list(prepared.data.training_loader(0, 1).plan))
    b = torch.cat(list(prepared.data.training_loader(0, 2).plan))
    assert not torch.equal(a, b)
    assert torch.equal(a, torch.cat(list(prepared.data.training_loader(0, 1).plan)))


def test_seeded_restores_the_generator():
    before = torch.random.get_rng_state()
    with seeded(3):
        torch.randn(2)
    assert torch.equal(before, torch.random.get_rng_state())


def test_accelerators():
    assert resolve_accelerator("cpu") == "cpu"
    with pytest.raises(
        ValueError, match=r"trainer.accelerator: expected one that this machine has"
    ):
        resolve_accelerator("abacus")
