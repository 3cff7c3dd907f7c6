"""Published figures, how far one's own may be from them, and where that number is from."""

from dataclasses import dataclass
from typing import Any

from cwfed.report.fields import Fields, check

NEAR_FACTOR = 2
"""Within so many tolerances a figure is near; beyond them it is off."""


@dataclass(frozen=True)
class Tolerance:
    """A tolerance.

    Attributes:
        points: Percentage points.
        source: Where it is from, such as a measured spread; empty where it was chosen.
    """

    points: float
    source: str = ""

    def __str__(self) -> str:
        """Return it in words: ``± 1.7 points, measured: ...``."""
        return f"± {self.points:g} points{f', measured: {self.source}' if self.source else ''}"


@dataclass(frozen=True)
class Published:
    """A published figure.

    Attributes:
        value: Percent; None where it is not known.
        tolerance: Within which a figure counts as reproduced.
        approx: Given only as "about".
    """

    value: float | None
    tolerance: Tolerance
    approx: bool = False

    def difference(self, mean: float | None) -> float | None:
        """Return a figure less the published one, in points; None where one is missing."""
        return None if mean is None or self.value is None else mean - self.value

    def judge(self, mean: float | None, *, scaled: bool = False) -> str | None:
        """Return whether a figure is reproduced, near or off.

        Args:
            mean: Percent; None where there is none.
            scaled: It does not follow the protocol.

        Returns:
            None where there is nothing to be judged: no figure, no published one, or a scaled one.
        """
        if mean is None or self.value is None or scaled:
            return None
        # To a thousandth of a point: floating point must not decide at the edge of a tolerance.
        distance = round(abs(mean - self.value), 3)
        if distance <= self.tolerance.points:
            return "reproduced"
        return "near" if distance <= NEAR_FACTOR * self.tolerance.points else "off"


def take_tolerance(fields: Fields, default: Tolerance) -> Tolerance:
    """Return the field ``tolerance``: a number, or ``{points: 1.7, source: ...}``.

    Args:
        fields: What may have the field.
        default: What counts where it is missing.

    Raises:
        ValueError: It is something else.
    """
    value: Any = fields.take("tolerance", "a number >= 0 or a mapping", None)
    if value is None:
        return default
    if not isinstance(value, dict):
        return Tolerance(value)
    own = Fields(value, f"{fields.where}tolerance.")
    tolerance = Tolerance(
        own.take("points", "a number >= 0"),
        own.take("source", "a text"),
    )
    own.finish()
    return tolerance


def take_published(value: Any, tolerance: Tolerance, where: str) -> Published:
    """Return a published figure: a percentage, null, or a mapping.

    Args:
        value: What was written.
        tolerance: Of its column.
        where: File and field, for messages.

    Raises:
        ValueError: It is something else.
    """
    if value is None:
        return Published(None, tolerance)
    if not isinstance(value, dict):
        return Published(check(value, "a percentage", where), tolerance)
    own = Fields(value, f"{where}.")
    published = Published(
        own.take("value", "a percentage"),
        take_tolerance(own, tolerance),
        own.take("approx", "true or false", False),
    )
    own.finish()
    return published
