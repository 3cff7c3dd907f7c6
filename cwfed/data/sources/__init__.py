"""Sources of images: public data sets, files of one's own, generated images.

A source reads and decodes; it divides nothing.
"""

from cwfed.data.sources.base import Source, default_data_dir
from cwfed.data.sources.digits import Digits
from cwfed.data.sources.folder import ImageFolder
from cwfed.data.sources.parquet import Parquet
from cwfed.data.sources.pfllib import PFLlib
from cwfed.data.sources.synthetic import SyntheticImages
from cwfed.data.sources.tiny_imagenet import TinyImageNet
from cwfed.data.sources.vision import CIFAR10, CIFAR100, MNIST

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "Digits",
    "ImageFolder",
    "PFLlib",
    "Parquet",
    "Source",
    "SyntheticImages",
    "TinyImageNet",
    "default_data_dir",
]
