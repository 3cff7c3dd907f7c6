"""The names by which parameters, buffers and layers of a model travel."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelContract:
    """Names that aggregators, objective terms and engines rely on.

    Attributes:
        head: Name of the output layer's module, such as ``"head"`` or ``"net.fc"``.
        head_weight: Name of its weight, ``[K, F]``.
        head_bias: Name of its bias, ``[K]``, or None.
        blocks: For each top-level child that holds parameters, in the order of registration, the
            names of its parameters and buffers; parameters of the model itself form a block each.
        parameters: Names of all trainable tensors; frozen parameters stay as they are.
        float_buffers: Names of floating-point buffers, such as BatchNorm's running statistics.
        counters: Names of the other buffers.
    """

    head: str
    head_weight: str
    head_bias: str | None
    blocks: tuple[tuple[str, ...], ...]
    parameters: tuple[str, ...]
    float_buffers: tuple[str, ...]
    counters: tuple[str, ...]

    def last_blocks(self, count: int) -> frozenset[str]:
        """Return the names in the last `count` blocks, which must contain the output layer.

        Raises:
            ValueError: The model has fewer blocks, or its output layer lies in an earlier one.
        """
        if not 1 <= count <= len(self.blocks):
            raise ValueError(
                f"scope: expected between 1 and {len(self.blocks)} layers (the model's top-level "
                f"blocks with parameters), got {count}"
            )
        names = frozenset(name for block in self.blocks[-count:] for name in block)
        if self.head_weight not in names:
            raise ValueError(
                f"scope: the last {count} top-level blocks do not contain the output layer "
                f"{self.head!r}; expected a larger number, 'output' or 'all', got {count}"
            )
        return names

    def head_names(self) -> frozenset[str]:
        """Return the names of the output layer's weight and bias."""
        return frozenset(name for name in (self.head_weight, self.head_bias) if name)
