"""Changes of a profile to a cell, once the cell's configuration is known."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from cwfed.data.partitioners.released import published_counterpart
from cwfed.federated.options import ReleasedCode
from cwfed.sweeps.profiles import Profile, class_name

_PUBLISHED = ("MNIST", "CIFAR10", "CIFAR100", "TinyImageNet", "SyntheticImages")
"""Data sets that the published code divides, and the images that are generated for them."""


def protocol_options(profile: Profile, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a cell needs to follow the protocol of a profile.

    Args:
        profile: The profile.
        config: The cell's configuration, resolved without them.
    """
    options: dict[str, Any] = {}
    if profile.published_split and class_name(config["data"]) in _PUBLISHED:
        options |= _published_partition(config["partition"])
    if profile.released_code:
        options |= {f"released_code.{each.name}": True for each in fields(ReleasedCode)}
        aggregator = config["algorithm"]["aggregator"].get("init_args") or {}
        if "aggregate_buffers" in aggregator:
            options["algorithm.aggregator.init_args.aggregate_buffers"] = False
    return options


def _published_partition(choice: Mapping[str, Any]) -> dict[str, Any]:
    published = published_counterpart(choice)
    if published is None:
        return {}
    arguments = {f"partition.{name}": value for name, value in published["init_args"].items()}
    return {"partition": published["class_path"], **arguments}
