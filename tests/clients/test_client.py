import torch
from helpers import TinyNet
from lightning.pytorch import LightningModule

from cwfed.clients import ClientModule
from cwfed.models import describe_model
from cwfed.objectives import ClientContext, CrossEntropy, Objective, ObjectiveTerm


class FeatureNorm(ObjectiveTerm):
    needs_features = True

    def __init__(self):
        self.weight = 1.0

    def value(self, step, client):
        self.seen = step.features_BF
        return step.features_BF.pow(2).mean()


def make(terms, trainable=None):
    torch.manual_seed(0)
    model = TinyNet(4, 1, 8)
    module = ClientModule(
        model,
        describe_model(model, 4),
        lambda params: torch.optim.SGD(params, lr=0.1),
        4,
    )
    context = ClientContext(torch.full((4,), 0.25, dtype=torch.float64), "out.weight")
    module.bind(context, Objective(terms), trainable or module.contract.parameters)
    return module


def test_a_client_is_a_lightning_module():
    assert isinstance(make([CrossEntropy()]), LightningModule)


def test_features_are_the_input_of_the_output_layer():
    term = FeatureNorm()
    module = make([CrossEntropy(), term])
    module.eval()
    batch = (torch.randn(5, 1, 8, 8), torch.tensor([0, 1, 2, 3, 0]))
    module.training_step(batch, 0)
    logits = module.model.out(term.seen)
    torch.testing.assert_close(logits, module(batch[0]))


def test_only_what_a_phase_trains_is_optimised():
    module = make([CrossEntropy()], ["out.weight"])
    (group,) = module.configure_optimizers().param_groups
    assert [id(p) for p in group["params"]] == [id(module.model.out.weight)]
    module.bind(module.context, Objective([CrossEntropy()]), module.contract.parameters)
    (group,) = module.configure_optimizers().param_groups
    assert len(group["params"]) == len(module.contract.parameters)


def test_scores():
    module = make([CrossEntropy()]).eval()
    images, targets = torch.randn(7, 1, 8, 8), torch.tensor([0, 1, 2, 3, 0, 1, 2])
    module.on_validation_start()
    module.validation_step((images[:4], targets[:4]), 0)
    module.validation_step((images[4:], targets[4:]), 1)
    correct, total, loss = module.score()
    logits = module(images)
    assert correct == logits.argmax(1).eq(targets).sum()
    assert total == 7
    expected = torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
    assert abs(loss - expected) < 1e-5
