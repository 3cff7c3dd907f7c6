import pytest
import torch
from torch import nn

from cwfed.models import CNN4, ResNet18, build_model, check_output, describe_model


@pytest.mark.parametrize(
    ("shape", "classes", "parameters"),
    [
        ((1, 28, 28), 10, 582_026),
        ((3, 32, 32), 10, 878_538),
        ((3, 32, 32), 100, 924_708),
        ((3, 64, 64), 200, 5_694_600),
    ],
)
def test_cnn_has_the_published_number_of_parameters(shape, classes, parameters):
    model = build_model(CNN4, shape, classes)
    assert sum(p.numel() for p in model.parameters()) == parameters
    check_output(model, shape, classes)


def test_resnet_is_torchvisions_resnet18():
    from torchvision.models import resnet18

    ours = build_model(ResNet18, (3, 64, 64), 200)
    theirs = resnet18(num_classes=200)
    shapes = {n: p.shape for n, p in theirs.state_dict().items()}
    assert {n: p.shape for n, p in ours.state_dict().items()} == shapes
    assert sum(p.numel() for p in ours.parameters()) == 11_279_112
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 64, 64)
    assert torch.equal(ours.eval()(x), theirs.eval()(x))


def test_resnet_for_grey_images():
    model = build_model(ResNet18, (1, 32, 32), 10)
    check_output(model, (1, 32, 32), 10)


def test_contract_of_the_cnn():
    contract = describe_model(build_model(CNN4, (1, 28, 28), 10), 10)
    assert contract.head_names() == {"head.weight", "head.bias"}
    assert [block[0].split(".")[0] for block in contract.blocks] == ["conv1", "conv2", "fc", "head"]
    assert contract.last_blocks(1) == contract.head_names()
    assert contract.last_blocks(2) == {"fc.weight", "fc.bias", "head.weight", "head.bias"}
    assert contract.last_blocks(4) == set(contract.parameters)
    for count in (0, 5):
        with pytest.raises(ValueError, match="between 1 and 4"):
            contract.last_blocks(count)


def test_contract_of_the_resnet_lists_buffers():
    contract = describe_model(build_model(ResNet18, (3, 64, 64), 200), 200)
    assert contract.head == "fc"
    assert "bn1.running_mean" in contract.float_buffers
    assert "bn1.num_batches_tracked" in contract.counters
    assert len(contract.blocks) == 7
    assert "layer4.0.bn1.running_var" in contract.last_blocks(2)


class Foreign(nn.Module):
    """A user's model: nested head, no bias, arguments of its own."""

    def __init__(self, width: int = 3):
        super().__init__()
        self.net = nn.ModuleDict({"body": nn.Linear(4, width)})
        self.tail = nn.ModuleDict({"logits": nn.Linear(width, 5, bias=False)})

    def forward(self, x):
        return self.tail["logits"](torch.relu(self.net["body"](x.flatten(1))))


def test_any_module_with_a_named_head():
    model = build_model(Foreign, (1, 2, 2), 5)
    contract = describe_model(model, 5, "tail.logits")
    assert contract.head_weight == "tail.logits.weight"
    assert contract.head_bias is None
    check_output(model, (1, 2, 2), 5)


@pytest.mark.parametrize("head", [None, "nowhere", "net", "net.body"])
def test_a_head_that_is_none_is_refused(head):
    with pytest.raises(ValueError, match="head: ") as error:
        describe_model(Foreign(), 5, head)
    assert str(head) in str(error.value) or "None" in str(error.value)


def test_a_head_outside_the_last_blocks_is_refused():
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 5))
    contract = describe_model(model, 5, "0")
    with pytest.raises(ValueError, match="do not contain the output layer"):
        contract.last_blocks(1)


def test_wrong_output_is_refused():
    with pytest.raises(ValueError, match=r"\(2, 7\)"):
        check_output(Foreign(), (1, 2, 2), 7)
    with pytest.raises(ValueError, match="fails on a batch"):
        check_output(Foreign(), (3, 2, 2), 5)


def test_too_small_images_are_refused():
    with pytest.raises(ValueError, match="image_size: expected at least 16"):
        build_model(CNN4, (1, 8, 8), 10)
    with pytest.raises(ValueError, match="square"):
        build_model(CNN4, (1, 28, 32), 10)


def test_missing_arguments_of_a_factory_are_named():
    with pytest.raises(ValueError, match=r"could not be built.*depth"):
        build_model(lambda depth: Foreign(), (1, 2, 2), 5)
