"""cwfed: class-wise federated averaging and its rivals, on PyTorch Lightning."""

__version__ = "0.1.0"
