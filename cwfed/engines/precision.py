"""Precision of float32 products on a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from cwfed.engines.base import MatmulPrecision


@contextmanager
def matmul_precision(setting: MatmulPrecision) -> Iterator[None]:
    """Set the precision of float32 products and convolutions for a block.

    PyTorch keeps two switches: one for products, and one for convolutions, which may use TF32
    unless told otherwise.

    Args:
        setting: ``highest`` allows neither TF32; ``high`` and ``medium`` allow both.
    """
    products = torch.get_float32_matmul_precision()
    convolutions = torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(setting)
    torch.backends.cudnn.allow_tf32 = setting != "highest"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions
