"""Loss terms of local training: one small class a file.

A term never calls the model; it gets logits, features and parameters by name.
"""

from cwfed.objectives.attention import AttentionProximal
from cwfed.objectives.base import ClientContext, Objective, ObjectiveTerm, Step
from cwfed.objectives.cross_entropy import CrossEntropy
from cwfed.objectives.feduv import ClassifierVariance, EncoderUniformity
from cwfed.objectives.proximal import Proximal
from cwfed.objectives.wdr import WDR

__all__ = [
    "WDR",
    "AttentionProximal",
    "ClassifierVariance",
    "ClientContext",
    "CrossEntropy",
    "EncoderUniformity",
    "Objective",
    "ObjectiveTerm",
    "Proximal",
    "Step",
]
