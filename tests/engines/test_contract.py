"""Every engine of the package keeps the contract: found as a subclass, so a new one is tested."""

import inspect
from pkgutil import walk_packages

from engine_contract import EngineContract

import cwfed.engines
from cwfed.engines import Engine

for module in walk_packages(cwfed.engines.__path__, "cwfed.engines."):
    __import__(module.name)


def engines(base=Engine):
    for kind in base.__subclasses__():
        yield from engines(kind)
        if kind.__module__.startswith("cwfed.") and not inspect.isabstract(kind):
            yield kind


FOUND = sorted(set(engines()), key=lambda kind: kind.__name__)
for kind in FOUND:
    name = f"Test{kind.__name__}"
    globals()[name] = type(name, (EngineContract,), {"engine": kind, "__module__": __name__})


def test_engines_are_found():
    names = {"SequentialEngine", "ParallelEngine", "VectorizedEngine"}
    assert names <= {kind.__name__ for kind in FOUND}
