import pytest
import torch
from helpers import assert_same, small_experiment

from cwfed.engines import sequential
from cwfed.engines.sequential import resolve_accelerator, seeded
from cwfed.functional.stacking import take_rows


def engine_and_start(**changes):
    prepared = small_experiment(**changes).prepare()
    loop, start = prepared.loop(), prepared.initialisation()
    (phase,) = loop.phases

    def fit(round_, clients, bank):
        rows = take_rows(bank, clients)
        return loop.engine.fit(round_, clients, rows, rows, *phase)

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
    assert torch.equal(scores[[3]], engine.evaluate([3], take_rows(start, [3]), "test"))


def test_a_part_without_samples_scores_zero():
    _, engine, start, _ = engine_and_start()
    assert engine.evaluate([0], take_rows(start, [0]), "val").tolist() == [[0, 0, 0]]


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
    with pytest.raises(ValueError, match=r"trainer.accelerator: expected auto"):
        resolve_accelerator("abacus")


def test_measuring_class_means_leaves_training_as_it_was():
    """Lightning trains a module in the mode it finds it in."""
    _, engine, start, fit = engine_and_start(dropout=0.5)
    before = fit(1, [0], start)
    means, counts = engine.class_means([0, 3], take_rows(start, [0, 3]))
    assert means.shape == (2, 4, 8)
    assert counts.sum() > 0
    assert_same(fit(1, [0], start).models, before.models)


def test_class_means_are_means_of_unit_length_features():
    prepared, engine, start, _ = engine_and_start(dropout=0.5)
    means, counts = engine.class_means([2], take_rows(start, [2]))
    model = prepared.model.eval()
    index = prepared.data.indices(2, "train")
    images = prepared.data.images.images_NCHW[index].double() / 127.5 - 1
    kept = []
    model.out.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0].detach()))
    model(images)
    labels = prepared.data.images.labels_N[index]
    for class_ in range(4):
        rows = kept[0][labels == class_]
        assert counts[0, class_] == len(rows)
        expected = (
            torch.stack([r / r.norm() for r in rows]).mean(0) if len(rows) else 0 * kept[0][0]
        )
        torch.testing.assert_close(means[0, class_], expected, atol=1e-12, rtol=0)


def test_a_loss_scale_does_not_pass_from_client_to_client(monkeypatch):
    make = sequential.make_trainer

    def with_scaler(*args):
        trainer = make(*args)
        trainer.precision_plugin.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        return trainer

    monkeypatch.setattr(sequential, "make_trainer", with_scaler)
    prepared, engine, start, fit = engine_and_start()
    scales = []
    step = engine.module.training_step

    def training_step(*batch):
        scales.append(engine.scaler.get_scale())
        engine.scaler.load_state_dict(engine.scaler.state_dict() | {"scale": 2.0})
        return step(*batch)

    monkeypatch.setattr(engine.module, "training_step", training_step)
    fit(1, [0, 1], start)
    first = len(prepared.data.training_loader(0, 1))
    assert scales[0] == scales[first] == 8.0
    assert set(scales[1:first]) == {2.0}
