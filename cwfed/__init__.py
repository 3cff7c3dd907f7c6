"""cwfed: class-wise federated averaging and its rivals, on PyTorch Lightning.

The few names of the Python interface can be taken from here; everything else has one place of its
own, such as ``cwfed.aggregators.CwFedAvg`` or ``cwfed.data.partitioners.Dirichlet``. All of it is
loaded when it is first used: ``import cwfed`` alone costs nothing.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cwfed.aggregators.by_hand import aggregate as aggregate
    from cwfed.api import fit as fit
    from cwfed.api import resume as resume
    from cwfed.records.run import Run as Run

__version__ = "0.1.0"

# Not the classes that configurations name: they would be written there by a shorter name, and
# the hashes of all runs change.
_HOMES = {
    "Run": "cwfed.records.run",
    "aggregate": "cwfed.aggregators.by_hand",
    "fit": "cwfed.api",
    "resume": "cwfed.api",
}

__all__ = ["Run", "__version__", "aggregate", "fit", "resume"]


def __getattr__(name: str) -> Any:
    """Load a name of the interface, or a part of the package, when it is first asked for."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if not name.startswith("_") and find_spec(f"{__name__}.{name}"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the names of the interface beside what is loaded."""
    return sorted({*globals(), *__all__})
