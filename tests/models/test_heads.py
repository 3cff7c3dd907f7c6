import pytest
import torch
from helpers import TinyNet
from torch import nn

from cwfed.models import (
    CNN4,
    CosineClassifier,
    Head,
    PrototypeHead,
    ResNet18,
    build_model,
    check_output,
    describe_model,
)


def installed(model, classes, head=None, scale=1.0):
    contract = describe_model(model, classes, head)
    PrototypeHead(scale).install(model, contract)
    return model, describe_model(model, classes, contract.head)


@pytest.mark.parametrize(
    ("factory", "shape", "classes"), [(CNN4, (1, 28, 28), 10), (ResNet18, (3, 32, 32), 20)]
)
def test_prototypes_are_orthonormal_frozen_and_without_bias(factory, shape, classes):
    model, contract = installed(build_model(factory, shape, classes), classes, scale=20.0)
    weight = model.get_parameter(contract.head_weight)
    torch.testing.assert_close(weight @ weight.T, torch.eye(classes), atol=1e-5, rtol=0)
    assert not weight.requires_grad
    assert contract.head_weight not in contract.parameters
    assert contract.head_bias is None
    assert f"{contract.head}.scale" in contract.parameters
    assert model.get_parameter(f"{contract.head}.scale").item() == 20.0
    check_output(model, shape, classes)


def test_logits_are_scaled_cosines():
    head = CosineClassifier(4, 6, 3.0, torch.zeros(1, dtype=torch.float64))
    features = torch.randn(5, 6, dtype=torch.float64) * torch.tensor([[1e-6], [1], [2], [9], [1e6]])
    logits = head(features)
    for b in range(5):
        for k in range(4):
            cosine = torch.cosine_similarity(features[b], head.weight[k], dim=0)
            assert abs(logits[b, k] - 3.0 * cosine) < 1e-12
    torch.testing.assert_close(head(7 * features), logits)


def test_gradients_reach_the_features_and_the_scale_but_not_the_prototypes():
    head = CosineClassifier(4, 6, 2.0, torch.zeros(1, dtype=torch.float64))
    features = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(head, (features,))
    head(features).sum().backward()
    assert head.weight.grad is None
    torch.testing.assert_close(head.scale.grad, head(features).sum().detach() / 2.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_features_of_zeros_and_small_or_large_ones(dtype):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    head = CosineClassifier(2, 3, 1.0, torch.zeros(1, dtype=wide))
    features = torch.tensor([[0.0, 0, 0], [1e-4, 0, 0], [3e4, 3e4, 0]], dtype=dtype)
    features.requires_grad_()
    logits = head(features)
    logits.sum().backward()
    assert logits.dtype == wide
    assert (logits[0] == 0).all()
    torch.testing.assert_close(logits[1], head.weight[:, 0])
    assert logits.isfinite().all()
    assert features.grad.isfinite().all()
    assert features.grad[0].abs().max() < 10


def test_the_head_takes_the_models_precision():
    model, contract = installed(TinyNet(4, 1, 8).double(), 4)
    assert model.get_parameter(contract.head_weight).dtype == torch.float64
    assert model.out.scale.dtype == torch.float64


def test_the_head_is_a_function_of_the_seed():
    rows = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        rows.append(installed(TinyNet(4, 1, 8), 4)[0].out.weight)
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])


def test_a_nested_head_is_replaced_by_name():
    model = nn.ModuleDict({"tail": nn.ModuleDict({"logits": nn.Linear(6, 5, bias=False)})})
    _, contract = installed(model, 5, "tail.logits")
    assert isinstance(model["tail"]["logits"], CosineClassifier)
    assert contract.head_weight == "tail.logits.weight"


def test_as_many_classes_as_features_are_the_limit():
    installed(nn.Sequential(nn.Linear(5, 5)), 5, "0")
    with pytest.raises(ValueError, match=r"algorithm.head: .* got 5 classes and 4 features"):
        installed(nn.Sequential(nn.Linear(4, 5)), 5, "0")


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_scales_are_refused(scale):
    with pytest.raises(ValueError, match="scale: expected a finite number > 0, got"):
        PrototypeHead(scale)


def test_a_head_is_an_abstract_base():
    with pytest.raises(TypeError):
        Head()
