"""The names by which parameters, buffers and layers of a model travel."""

from dataclasses import dataclass


def check_scope(name: str, scope: object, words: tuple[str, ...]) -> None:
    """Raise a ValueError that names the argument unless the scope is a word or a number >= 1.

    Args:
        name: The argument.
        scope: What came.
        words: The words that are allowed, see `ModelSpec.names_in`.
    """
    layers = isinstance(scope, int) and not isinstance(scope, bool) and scope >= 1
    if scope not in words and not layers:
        known = ", ".join(map(repr, words))
        raise ValueError(f"{name}: expected {known} or an integer >= 1, got {scope!r}")


@dataclass(frozen=True)
class ModelSpec:
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

    def names_in(self, scope: str | int) -> frozenset[str]:
        """Return the names of the parameters and buffers in a scope.

        Args:
            scope: ``none``, ``output`` (weight and bias of the output layer), ``all``, or a number
                L for the last L top-level blocks that hold parameters.

        Raises:
            ValueError: The model has no such last blocks.
        """
        if isinstance(scope, int):
            return self.last_blocks(scope)
        if scope == "all":
            return frozenset((*self.parameters, *self.float_buffers, *self.counters))
        return self.head_names() if scope == "output" else frozenset()

    def require_trained(self, names: frozenset[str], what: str) -> None:
        """Raise a ValueError unless something of a scope is trained.

        Args:
            names: Names in the scope.
            what: What is to be done with them.
        """
        if names and not names & set(self.parameters):
            raise ValueError(
                f"algorithm.head: expected an output layer that is trained, since {what}; got "
                f"{self.head!r}, which is frozen"
            )

    def head_names(self) -> frozenset[str]:
        """Return the names of the output layer's weight and bias."""
        return frozenset(name for name in (self.head_weight, self.head_bias) if name)
