"""Profiles: how much of the protocol a run of a table follows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cwfed.config.files import find_config, load_mapping


@dataclass(frozen=True)
class Profile:
    """A share of the protocol.

    Attributes:
        name: What a person types.
        about: One line.
        rounds: Rounds of a run; None takes the table's ``protocol_rounds``.
        seeds: Seeds of each cell.
        generated: Tiny generated images take the place of the data set.
        warm: Cells share imports: each runs in a process forked from one that has imported all.
        options: Options of ``cwfed fit`` that come last.
        published_split: The published partition takes the place of the suite's own.
        released_code: All that the released code does besides.
    """

    name: str
    about: str
    rounds: int | None
    seeds: tuple[int, ...]
    generated: bool = False
    warm: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    published_split: bool = False
    released_code: bool = False


# A checkpoint of all clients' models takes about a second; a lost round costs more.
_LONG = {"checkpoint.every": 5}

PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "paper",
            "the exact protocol: the published partition, the table's rounds, three seeds",
            None,
            (0, 1, 2),
            options=_LONG,
            published_split=True,
        ),
        Profile(
            "released",
            "as paper, and all that the released code does besides (half λ, p with test labels, …)",
            None,
            (0, 1, 2),
            options=_LONG,
            published_split=True,
            released_code=True,
        ),
        Profile(
            "cpu",
            "the protocol for 10 rounds and one seed, on real data and partitions of our own",
            10,
            (0,),
        ),
        Profile(
            "smoke",
            "every cell for 2 rounds on tiny generated images: does it run?",
            2,
            (0,),
            generated=True,
            warm=True,
            options={
                "trainer.accelerator": "cpu",
                "trainer.engine": "sequential",
                "checkpoint.every": 1000,
            },
        ),
    )
}


@dataclass(frozen=True)
class Shape:
    """Size of a data set's images and how many there are."""

    samples: int
    classes: int
    channels: int
    side: int


SHAPES = {
    "MNIST": Shape(70_000, 10, 1, 28),
    "CIFAR10": Shape(60_000, 10, 3, 32),
    "CIFAR100": Shape(60_000, 100, 3, 32),
    "TinyImageNet": Shape(100_000, 200, 3, 64),
    "Digits": Shape(1_797, 10, 1, 28),
}
"""By class of data source; for estimates and for what the generated images are like."""

_GENERATED_SIDE = 16  # the least that the four-layer CNN takes
_GENERATED_SAMPLES = 1_000


def generated_options(config: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that put generated images in the place of a column's data.

    Args:
        config: The column's configuration.
        options: The cell's options, which may choose other data.
    """
    chosen = options.get("data") or load_mapping(find_config(config)).get("data", {})
    shape = SHAPES.get(class_name(chosen), Shape(0, 10, 1, 0))
    return {
        "data": "SyntheticImages",
        "data.num_classes": shape.classes,
        "data.channels": shape.channels,
        "data.image_size": _GENERATED_SIDE,
        "data.samples_per_class": max(_GENERATED_SAMPLES // shape.classes, 6),
    }


def class_name(choice: Mapping[str, Any] | str) -> str:
    """Return the name of a chosen class without its module."""
    path = choice if isinstance(choice, str) else choice.get("class_path", "")
    return str(path).rpartition(".")[2]
