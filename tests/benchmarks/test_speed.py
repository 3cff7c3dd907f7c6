"""The plain loops do what they claim, and the tables say what was measured."""

import pytest
import torch

from benchmarks import speed
from benchmarks.plain import TensorLoop, TupleLoop
from cwfed.data.images import normalise

TINY = speed.Setting("MNIST", clients=2, samples=40)


@pytest.fixture(scope="module")
def prepared():
    torch.set_num_threads(1)
    return TINY.prepare("sequential")


@pytest.mark.parametrize("kind", [TensorLoop, TupleLoop])
def test_plain_loops_train_average_and_time_what_a_round_does(prepared, kind):
    loop = kind(prepared.data, prepared.model)
    index = prepared.data.indices(1, "test")
    image, label = loop.test[1][0]
    images = prepared.data.images
    assert torch.equal(image, normalise(images.images_NCHW[index[:1]], torch.float32)[0])
    assert label == images.labels_N[index[0]]
    seconds = loop.round()
    assert seconds.keys() == {"fit", "aggregate", *speed.EVALUATIONS}
    assert all(value > 0 for value in seconds.values())
    first, second = (dict(model.named_parameters()) for model in loop.models)
    start = dict(prepared.model.named_parameters())
    for name, value in first.items():
        assert torch.equal(value, second[name]), "both have the average"
        assert not torch.equal(value, start[name]), "which was trained"


def test_the_average_is_weighted_by_samples(prepared):
    loop = TensorLoop(prepared.data, prepared.model)
    loop.train = [range(10), range(30)]
    with torch.no_grad():
        for value, model in zip((1.0, 5.0), loop.models, strict=True):
            model.head.bias.fill_(value)
    loop.average()
    for model in loop.models:
        assert torch.allclose(model.head.bias, torch.tensor(4.0))


def test_what_is_typical_is_the_median_and_an_evaluation_is_half_of_both():
    def seconds(fit, received, post_local):
        return {"fit": fit, "evaluate_received": received, "evaluate_post_local": post_local}

    rounds = [seconds(1.0, 0.2, 0.4), seconds(9.0, 9.0, 9.0), seconds(2.0, 0.6, 0.2)]
    fit, evaluation, whole = speed.typical(rounds)
    assert (fit, evaluation) == (2.0, pytest.approx(0.4))
    assert whole == pytest.approx(2.8)


def test_the_table_compares_training_with_tensors_and_rounds_with_tuples(monkeypatch):
    def measured(_, turns):
        def rounds(fit, evaluation):
            seconds = {"fit": fit, **dict.fromkeys(speed.EVALUATIONS, evaluation)}
            return [seconds] * turns

        return {
            "plain loop, tensors": ("2 threads", rounds(6.0, 1.0)),
            "plain loop, list of tuples": ("2 threads", rounds(8.0, 2.0)),
            "parallel": ("2 workers", rounds(3.0, 0.5)),
        }

    monkeypatch.setattr(speed, "measure", measured)
    lines = speed.speed_table(speed.Setting("CIFAR-10"), ["parallel"], 5).splitlines()
    assert "20 clients, 1500 steps" in lines[0]
    assert lines[-1] == "| parallel (2 workers) | 2.00 | 12.5% | 2.00 x | 3.00 x |"


@pytest.mark.parametrize("shape", ["MNIST", "CIFAR-10"])
def test_real_images_take_the_place_of_generated_ones(shape, shared_data, tmp_path, monkeypatch):
    monkeypatch.setenv("CWFED_CACHE", str(tmp_path))
    setting = speed.Setting(shape, clients=2, samples=40, data_dir=str(shared_data))
    images = setting.prepare("sequential").data.images
    assert len(images) == 80
    assert images.labels_N.unique().tolist() == list(range(10))
    whole = speed.REAL[shape]().load(shared_data)
    assert images.content_hash == whole.content_hash
    assert torch.equal(images.images_NCHW[79], whole.images_NCHW[79 * len(whole) // 80])
    assert f"{shape}, real images" == setting.name
    with pytest.raises(ValueError, match="samples: expected at most"):
        speed.Setting(shape, samples=10_000, data_dir=str(shared_data)).prepare("sequential")


def test_matrix_products_take_time():
    assert 0 < speed.product_limit(TINY, turns=1) < 1000


def test_contenders_are_both_loops_and_the_engines():
    names = list(speed.contenders(TINY, ["parallel"]))
    assert names == ["plain loop, tensors", "plain loop, list of tuples", "parallel"]


def test_an_engine_answers_round_by_round():
    class Pipe:
        def __init__(self):
            self.sent = []

        def send(self, value):
            self.sent.append(value)

        def recv(self):
            if len(self.sent) == 3:
                raise EOFError

    pipe = Pipe()
    with pytest.raises(EOFError):
        speed.run_engine(TINY, "sequential", pipe)
    described, initial, first = pipe.sent
    assert "engine sequential on cpu" in described
    assert set(initial) == {"evaluate_received"}
    assert {"fit", *speed.EVALUATIONS} <= set(first)
