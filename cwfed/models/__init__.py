"""Built-in networks and output layers.

A model maps images to logits; it knows no client and no method.
"""

from cwfed.contract.inspection import (
    DATA_ARGUMENTS,
    ModelFactory,
    build_model,
    check_output,
    check_training,
    describe_model,
)
from cwfed.models.cnn import CNN4
from cwfed.models.heads import CosineClassifier, Head, PrototypeHead
from cwfed.models.resnet import ResNet18

__all__ = [
    "CNN4",
    "DATA_ARGUMENTS",
    "CosineClassifier",
    "Head",
    "ModelFactory",
    "PrototypeHead",
    "ResNet18",
    "build_model",
    "check_output",
    "check_training",
    "describe_model",
]
