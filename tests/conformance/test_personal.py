"""FedProx, Ditto, FedPer, FedRep and fine-tuned FedAvg against plain PyTorch, and their limits."""

from types import SimpleNamespace

import pytest
import torch
from helpers import Keep, assert_same, run, small_experiment
from methods import experiment as method
from personal_reference import distance, ditto, fedper, fedprox, fedrep, fine_tuned
from rounds import assert_models_equal

from cwfed.aggregators import CFL, IFCA, CwFedAvg, FedAMP, FedAvg, FedPer, Local
from cwfed.clients import TrainingPhase
from cwfed.config.files import UsageError
from cwfed.federated import Algorithm, LocalTraining
from cwfed.models import PrototypeHead
from cwfed.objectives import WDR, CrossEntropy, Proximal

ROUNDS = 4
TRAIN = TrainingPhase()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05)


def experiment(aggregator, objectives=(), phases=(TRAIN,), **changes):
    algorithm = Algorithm("test", aggregator, list(objectives), list(phases))
    return small_experiment(algorithm=algorithm, dropout=0.0, **{"rounds": ROUNDS} | changes)


def problem(of):
    prepared = of.prepare()
    data = prepared.data
    return SimpleNamespace(
        initial=prepared.model,
        n=[len(data.indices(i, "train")) for i in range(data.num_clients)],
        batches=lambda i, r, plan, epochs: data.training_loader(i, r, epochs, plan),
        lr=0.05,
    )


def personal_phase(weight):
    return TrainingPhase("personal", "personal", objectives=[Proximal(weight)])


HEAD = TrainingPhase(trainable="head")
BASE = TrainingPhase("upload", trainable="base", plan=1)


def test_fedprox():
    ours = experiment(FedAvg(), [Proximal(0.5)])
    state = run(ours)
    received, uploads = fedprox(problem(ours), ROUNDS, 0.5)
    assert_models_equal(state.received, received)
    assert_models_equal(state.uploads, uploads)
    free = run(experiment(FedAvg()))
    drift = [(s.uploads["out.weight"] - s.received["out.weight"]).norm() for s in (state, free)]
    assert drift[0] < 0.98 * drift[1], "the proximal term must hold clients back"


def test_ditto():
    ours = experiment(FedAvg(), phases=(TRAIN, personal_phase(0.5)))
    state = run(ours)
    received, personal = ditto(problem(ours), ROUNDS, 0.5)
    assert_models_equal(state.received, received)
    assert_models_equal(state.personal, personal)
    assert all(distance(a, b) > 1e-3 for a, b in zip(received, personal, strict=True))


@pytest.mark.parametrize(
    ("personal", "prefixes"), [("output", ("out.",)), (2, ("out.", "hidden.")), ("none", ())]
)
def test_fedper(personal, prefixes):
    ours = experiment(FedPer(personal))
    state = run(ours)
    received, uploads = fedper(problem(ours), ROUNDS, prefixes)
    assert_models_equal(state.received, received)
    assert_models_equal(state.uploads, uploads)


def test_fedrep():
    ours = experiment(FedPer(), phases=(HEAD, BASE))
    state = run(ours)
    received, uploads = fedrep(problem(ours), ROUNDS, "out.")
    assert_models_equal(state.received, received)
    assert_models_equal(state.uploads, uploads)


@pytest.mark.parametrize(
    ("name", "options", "head_epochs", "base_epochs"),
    [
        ("fedrep", [], 1, 1),
        ("fedrep", ["--client.local_epochs", "3"], 1, 3),
        ("fedrep", ["--client.head_epochs", "2"], 2, 1),
        ("fedrep", ["--client.head_epochs", "2", "--client.local_epochs", "3"], 2, 3),
        ("fedrep_original", ["--client.local_epochs", "3"], 10, 5),
        ("fedrep_original", ["--client.head_epochs", "2"], 2, 5),
    ],
)
def test_fedrep_as_shipped_trains_head_and_base_as_long_as_it_says(
    name, options, head_epochs, base_epochs, tmp_path
):
    changes = ["--model.dropout", "0", "--rounds", "2"]
    ours = method(name, tmp_path, *changes, *options)
    assert sum(phase.epochs or ours.client.local_epochs for phase, _ in ours.phases) == (
        head_epochs + base_epochs
    )
    received, uploads = fedrep(problem(ours), 2, "out.", head_epochs, base_epochs)
    state = run(ours)
    assert_models_equal(state.received, received)
    assert_models_equal(state.uploads, uploads)


def test_the_original_fedrep_is_fedrep_with_its_numbers_to_the_bit(tmp_path):
    original = run(method("fedrep_original", tmp_path, "--rounds", "1"))
    numbers = ["--client.head_epochs", "10", "--client.local_epochs", "5"]
    assert_same(
        dict(run(method("fedrep", tmp_path, "--rounds", "1", *numbers)).received),
        dict(original.received),
    )


def test_head_epochs_are_refused_where_nothing_would_follow_them(tmp_path):
    said = "client.head_epochs: expected null with a method that never trains .* fedavg, got 2"
    with pytest.raises(UsageError, match=said):
        method("fedavg", tmp_path, "--client.head_epochs", "2")
    with pytest.raises(UsageError, match=r"client.head_epochs: expected a number >= 1, got 0"):
        method("fedrep", tmp_path, "--client.head_epochs", "0")


def test_a_slow_client_counts_the_epochs_of_all_phases(tmp_path):
    """Simulated seconds grow with the steps: what is trained, not what the file says."""

    def steps(*options):
        made = method("fedrep", tmp_path, "--faults.deadline", "2", *options)
        return made.prepare().faults().steps_M

    once = steps()
    assert torch.equal(steps("--client.head_epochs", "3"), 2 * once)
    assert torch.equal(
        steps("--client.head_epochs", "3", "--client.local_epochs", "2"), once * 5 // 2
    )


def test_fine_tuning_is_scored_and_not_sent():
    tune = TrainingPhase("upload", "personal", epochs=3, plan=1)
    ours = experiment(FedAvg(), phases=(TRAIN, tune))
    state = run(ours)
    received, tuned = fine_tuned(problem(ours), ROUNDS, 3)
    assert_models_equal(state.received, received)
    assert_models_equal(state.personal, tuned)
    assert_same(state.received, run(experiment(FedAvg())).received)


def final_scores(of):
    kept = Keep()
    state = run(of, [kept])
    return state, kept.records[-1]


def test_what_is_scored():
    """Ditto: the personal model both times. Fine-tuning: the received one, then the tuned one."""
    ditto_state, ditto_line = final_scores(
        experiment(FedAvg(), phases=(TRAIN, personal_phase(0.1)))
    )
    engine = experiment(FedAvg()).prepare().loop().engine
    expected = engine.evaluate(range(5), ditto_state.personal, "test")
    assert torch.equal(ditto_line.received["test"], expected)
    assert torch.equal(ditto_line.post_local["test"], expected)

    tune = TrainingPhase("upload", "personal", epochs=3, plan=1)
    state, line = final_scores(experiment(FedAvg(), phases=(TRAIN, tune)))
    received = engine.evaluate(range(5), state.received, "test")
    tuned = engine.evaluate(range(5), state.personal, "test")
    assert torch.equal(line.received["test"], received)
    assert torch.equal(line.post_local["test"], tuned)


def test_identity_fedprox_without_weight_is_fedavg():
    assert_same(
        run(experiment(FedAvg(), [Proximal(0.0)])).received, run(experiment(FedAvg())).received
    )


def test_identity_ditto_without_weight_is_local():
    ditto_state = run(experiment(FedAvg(), phases=(TRAIN, personal_phase(0.0))))
    assert_same(ditto_state.personal, run(experiment(Local())).uploads)


def test_identity_fedper_with_no_personal_layer_is_fedavg():
    assert_same(run(experiment(FedPer("none"))).received, run(experiment(FedAvg())).received)


def test_identity_fedper_with_every_layer_personal_is_local():
    assert_same(run(experiment(FedPer("all"))).received, run(experiment(Local())).received)


def test_partial_participation_of_personal_models():
    ours = experiment(FedAvg(), phases=(TRAIN, personal_phase(0.1)), participation=0.4)
    kept = Keep()
    run(ours, [kept])
    states, records = kept.states, kept.records
    for before, after, record in zip(states, states[1:], records[1:], strict=False):
        for client in range(5):
            same = torch.equal(
                before.personal["out.weight"][client], after.personal["out.weight"][client]
            )
            assert same == (client not in record.participants)


def test_bad_phases_are_refused():
    with pytest.raises(ValueError, match="phases: expected a first phase that makes the upload"):
        experiment(FedAvg(), phases=())
    with pytest.raises(ValueError, match="phases: expected a first phase"):
        experiment(FedAvg(), phases=(TrainingPhase("upload"),))
    with pytest.raises(ValueError, match="phases: expected a first phase"):
        experiment(FedAvg(), phases=(TrainingPhase("personal"),))
    with pytest.raises(ValueError, match="phases: expected a phase with target personal"):
        experiment(FedAvg(), phases=(TRAIN, TrainingPhase("personal", "upload")))
    with pytest.raises(ValueError, match="objectives: expected terms beside cross-entropy"):
        experiment(FedAvg(), [CrossEntropy()])
    with pytest.raises(ValueError, match="epochs: expected an integer >= 1, got 0"):
        TrainingPhase(epochs=0)
    with pytest.raises(ValueError, match="personal: expected 'output', 'none', 'all'"):
        FedPer("half")


def frozen_head(aggregator, objectives=(), phases=(TRAIN,)):
    algorithm = Algorithm("test", aggregator, list(objectives), list(phases), PrototypeHead())
    return small_experiment(algorithm=algorithm, rounds=1)


@pytest.mark.parametrize("aggregator", [CwFedAvg(), FedPer()])
def test_a_method_that_needs_a_trained_output_layer_refuses_a_frozen_one(aggregator):
    with pytest.raises(ValueError, match=r"algorithm.head: expected an output layer that is train"):
        frozen_head(aggregator).prepare().loop()


def test_wdr_refuses_a_frozen_output_layer():
    with pytest.raises(ValueError, match="WDR acts on its weight"):
        frozen_head(FedAvg(), [WDR()]).prepare()


def test_a_phase_that_trains_nothing_is_refused():
    with pytest.raises(ValueError, match="phases: expected phase 0 to train something"):
        frozen_head(FedAvg(), phases=(HEAD, BASE)).prepare()


@pytest.mark.parametrize("aggregator", [CFL(), FedAMP(), IFCA(), CwFedAvg("all"), FedAvg()])
def test_a_scalar_parameter_is_aggregated(aggregator):
    state = run(frozen_head(aggregator))
    assert state.received["out.scale"].shape == (5,)


def test_proximal_terms_pull_towards_what_a_client_chose():
    """One step from the chosen centre has no pull yet: as without the term."""
    one_batch = {"client": LocalTraining(batch_size=1000, optimizer=sgd)}
    pulled = run(experiment(IFCA(), [Proximal(5.0)], **one_batch | {"rounds": 1}))
    free = run(experiment(IFCA(), **one_batch | {"rounds": 1}))
    assert_same(dict(pulled.uploads), dict(free.uploads))


def test_fine_tuning_in_two_phases_scores_the_received_model():
    phases = (
        TRAIN,
        TrainingPhase("upload", "personal", "head", plan=1),
        TrainingPhase("personal", "personal", "base", plan=1),
    )
    state, line = final_scores(experiment(FedAvg(), phases=phases))
    engine = experiment(FedAvg()).prepare().loop().engine
    assert torch.equal(line.received["test"], engine.evaluate(range(5), state.received, "test"))
