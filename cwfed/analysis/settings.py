"""Runs in groups: a setting holds what may be compared, a variant what may be averaged.

Runs are compared on the same data, the same kind of partition and the same number of rounds, seed
by seed: for a seed, every run of a setting has the same partition to the hash.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, TypeVar

from cwfed.analysis.facts import NOT_THE_METHOD, Facts
from cwfed.records.identity import filled, portable

Key = TypeVar("Key", bound=Hashable)

_MOST_DIFFERENCES = 3


@dataclass(frozen=True, eq=False)
class Variant:
    """Runs that differ in nothing but the seed.

    Attributes:
        label: Name of the method and, beside others of that name, what sets it apart.
        runs: The runs by seed and path.
    """

    label: str
    runs: Sequence[Facts]

    @property
    def counted(self) -> dict[int, Facts]:
        """Finished runs by seed; a seed that was run twice counts once."""
        return {facts.run.seed: facts for facts in reversed(self.runs) if facts.finished}

    def mean(self, figure: Callable[[Facts], float | None], seeds: Iterable[int]) -> float | None:
        """Return a figure's mean over seeds; None where a seed has none."""
        values = [figure(self.counted[seed]) for seed in sorted(seeds)]
        good = [value for value in values if value is not None]
        return fmean(good) if good and len(good) == len(values) else None


@dataclass(frozen=True, eq=False)
class Setting:
    """Runs that may be compared.

    Attributes:
        label: Data, partition and rounds, in words.
        dataset: Name of the data set.
        partition: The kind of partition, in words.
        rounds: Rounds that were asked for.
        variants: The methods, by label.
    """

    label: str
    dataset: str
    partition: str
    rounds: int
    variants: Sequence[Variant]


def mean_std(values: Iterable[float | None]) -> dict[str, float | int | None]:
    """Return mean, sample standard deviation (ddof 1; None for fewer than two) and number."""
    good = [value for value in values if value is not None]
    return {
        "mean": fmean(good) if good else None,
        "std": stdev(good) if len(good) > 1 else None,
        "n": len(good),
    }


def make_settings(every: Sequence[Facts]) -> list[Setting]:
    """Put runs into settings, in the order of their names."""
    groups: list[list[Facts]] = []
    for group in _by(every, lambda facts: facts.setting).values():
        hashes = _by(group, lambda facts: (facts.run.seed, facts.partition_hash))
        mixed = len(hashes) > len({facts.run.seed for facts in group})
        # One seed, two partitions: whatever made them, only runs on the same one are compared.
        parts = _by(group, lambda facts: facts.partition_hash).values() if mixed else [group]
        groups.extend(parts)
    labels = _distinct_labels(groups)
    made = [_setting(group, label) for group, label in zip(groups, labels, strict=True)]
    return sorted(made, key=lambda setting: setting.label)


def partition_text(config: Mapping[str, Any]) -> str:
    """Return a partition in words, such as ``Dirichlet, 10 clients, α 0.1``."""
    choice = config["partition"]
    arguments = dict(choice.get("init_args") or {})
    arguments.pop("path", None)
    words = [str(choice["class_path"]).rpartition(".")[2]]
    if (clients := arguments.pop("num_clients", None)) is not None:
        words.append(f"{clients} client{'s' * (clients != 1)}")
    for name, value in arguments.items():
        if value is not None:
            words.append(f"{'α' if name == 'alpha' else name.replace('_', ' ')} {value}")
    return ", ".join(words)


def _setting(group: Sequence[Facts], label: str) -> Setting:
    first = group[0]
    variants = []
    for same in _by(group, lambda facts: facts.run.algorithm).values():
        by_variant = list(_by(same, lambda facts: facts.variant).values())
        names = _variant_labels([runs[0] for runs in by_variant])
        for name, runs in zip(names, by_variant, strict=True):
            ordered = sorted(runs, key=lambda facts: (facts.run.seed, str(facts.run.path)))
            variants.append(Variant(name, ordered))
    return Setting(
        label,
        first.dataset,
        partition_text(first.run.config),
        first.planned,
        sorted(variants, key=lambda variant: variant.label),
    )


def _distinct_labels(groups: Sequence[Sequence[Facts]]) -> list[str]:
    labels = [
        f"{group[0].dataset}, {partition_text(group[0].run.config)}, {group[0].planned} "
        f"round{'s' * (group[0].planned != 1)}"
        for group in groups
    ]
    same = _by(range(len(labels)), lambda index: labels[index])
    for indices in same.values():
        marks = _marks([groups[index][0] for index in indices])
        for index, mark in zip(indices, marks, strict=True):
            labels[index] += mark
    return labels


def _marks(firsts: Sequence[Facts]) -> list[str]:
    """Return what tells settings of one name apart: the first hash that does, else a number."""
    if len(firsts) == 1:
        return [""]
    hashes = {
        "data": [facts.dataset_hash for facts in firsts],
        "partition": [facts.partition_hash for facts in firsts],
    }
    for name, values in hashes.items():
        if None not in values and len(set(values)) == len(values):
            return [f" ({name} {str(value)[:8]})" for value in values]
    return [f" (no. {number})" for number in range(1, len(firsts) + 1)]


def _variant_labels(firsts: Sequence[Facts]) -> list[str]:
    name = firsts[0].run.algorithm
    if len(firsts) == 1:
        return [name]
    configs = [portable(filled(facts.run.config)) for facts in firsts]
    leaves = [
        _leaves({k: v for k, v in config.items() if k not in NOT_THE_METHOD}) for config in configs
    ]
    keys = list(dict.fromkeys(key for own in leaves for key in own))
    differing = [key for key in keys if len({own.get(key) for own in leaves}) > 1]
    shown = differing[:_MOST_DIFFERENCES]
    made = [
        ", ".join([name, *(f"{key.rpartition('.')[2]} {own.get(key, 'null')}" for key in shown)])
        for own in leaves
    ]
    counts = {label: made.count(label) for label in made}
    return [
        label if counts[label] == 1 else f"{label} ({facts.variant[:6]})"
        for label, facts in zip(made, firsts, strict=True)
    ]


def _leaves(value: Any, where: str = "") -> dict[str, str]:
    if isinstance(value, dict):
        items = [(str(key), inner) for key, inner in value.items()]
    elif isinstance(value, list):
        items = [(str(index), inner) for index, inner in enumerate(value)]
    else:
        return {where: "null" if value is None else str(value)}
    found: dict[str, str] = {}
    for key, inner in items:
        found |= _leaves(inner, f"{where}.{key}" if where else key)
    return found


Item = TypeVar("Item")


def _by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    groups: dict[Key, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)
