"""Loss terms of local training."""

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
