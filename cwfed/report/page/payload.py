"""All that a page shows, as one plain value for JSON."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cwfed import __version__
from cwfed.analysis.facts import CHOICES, Facts, read_facts, short_names
from cwfed.analysis.settings import Setting, Variant, make_settings, mean_std
from cwfed.analysis.words import RULES, rank_by, summarise
from cwfed.records.reading import reading
from cwfed.records.round_lines import METRICS
from cwfed.records.run import Run
from cwfed.report.page import inside
from cwfed.report.page.html import script_json
from cwfed.report.page.paper import Identify, fill_table
from cwfed.report.tables import Table

if TYPE_CHECKING:
    from cwfed.report.page.discover import Found

RANKED = tuple(f"{metric}/{name}" for metric in METRICS for name in (*CHOICES, "worst10"))
"""Figures by which methods are ranked; of each, more is better."""


def make_payload(
    found: "Found", tables: Sequence[Table] = (), identify: Identify | None = None
) -> dict[str, Any]:
    """Return what a page of these runs shows.

    Args:
        found: The runs.
        tables: Tables of published figures.
        identify: Says which configuration a table's cell stands for; needed with tables.

    Raises:
        ValueError: A table's cell does not resolve.
    """
    names = short_names(found.runs)
    every = [read_facts(run, name) for run, name in zip(found.runs, names, strict=True)]
    index = {id(facts): number for number, facts in enumerate(every)}
    partitions, missing, taken = inside.partitions(every)
    rounds, note = inside.snapshot_rounds(every, taken)
    runs = [_run(f, missing.get(n, ""), rounds.get(n, [])) for n, f in enumerate(every)]
    return {
        "version": __version__,
        "runs": runs,
        "partitions": partitions,
        "settings": [_setting(setting, index) for setting in make_settings(every)],
        "tables": [fill_table(table, every, identify) for table in tables] if identify else [],
        "rules": RULES,
        "notes": [*found.skipped, *([note] if note else [])],
    }


def require_shown(run: Run) -> None:
    """Work out all that a page shows of a run by itself, snapshots aside.

    What its files may say has no end; whatever a page cannot make sense of comes up here, where
    the run is known, and does not keep others from the page.

    Raises:
        ValueError: It cannot be shown; the message names the folder.
    """
    with reading(run.path, "a run that can be shown"):
        facts = read_facts(run, run.path.name)
        settings = [_setting(setting, {id(facts): 0}) for setting in make_settings([facts])]
        script_json([_run(facts, "", ()), settings])


def _setting(setting: Setting, index: Mapping[int, int]) -> dict[str, Any]:
    return {
        "label": setting.label,
        "dataset": setting.dataset,
        "partition": setting.partition,
        "rounds": setting.rounds,
        "variants": [
            {
                "label": variant.label,
                "runs": [index[id(facts)] for facts in variant.runs],
                "counted": [index[id(f)] for _, f in sorted(variant.counted.items())],
                **_means(variant),
            }
            for variant in setting.variants
        ],
        "summary": {
            f"{metric}/{choice}": summarise(setting, metric, choice)
            for metric in METRICS
            for choice in CHOICES
        },
        "rankings": {name: _ranking(setting, name) for name in RANKED},
    }


def _ranking(setting: Setting, name: str) -> dict[str, Any]:
    """Return a ranking by a figure, with variants by their place in the setting."""
    place = {variant: number for number, variant in enumerate(setting.variants)}
    ranked = rank_by(setting, lambda facts: _figures(facts)[name])
    return {
        "seeds": ranked.seeds,
        "order": [{"variant": place[variant], "mean": mean} for variant, mean in ranked.order],
        "leaders": [place[variant] for variant in ranked.leaders],
        "apart": [place[variant] for variant in ranked.apart],
    }


def _means(variant: Variant) -> dict[str, Any]:
    """Return mean and deviation over seeds of every figure of a run."""
    counted = [_figures(facts) for _, facts in sorted(variant.counted.items())]
    names = list(counted[0]) if counted else []
    return {"means": {name: mean_std(one[name] for one in counted) for name in names}}


def _figures(facts: Facts) -> dict[str, float | None]:
    up, down = facts.megabytes or (None, None)
    accuracies = {
        f"{metric}/{choice}": facts.accuracy(metric, choice)
        for metric in METRICS
        for choice in CHOICES
    }
    return {
        **accuracies,
        **{f"{metric}/worst10": facts.worst10(metric) for metric in METRICS},
        "mean_R": (facts.figures or {}).get("mean_R"),
        "megabytes_up": up,
        "megabytes_down": down,
        "megabytes": None if up is None or down is None else up + down,
        "seconds": facts.seconds,
        "left_out": facts.left_out,
    }


def _run(facts: Facts, missing: str, rounds: Sequence[int]) -> dict[str, Any]:
    held, sentence = inside.snapshots(facts, rounds)
    notes = [*facts.notes, missing, sentence]
    return {
        **_about(facts),
        "figures": _figures(facts),
        "correct": {
            f"{metric}/{choice}": facts.correct_M(metric, choice)
            for metric in METRICS
            for choice in CHOICES
        },
        "test": facts.test_M,
        "curves": inside.curves(facts) if facts.run.lines else None,
        "left_out": inside.left_out(facts),
        "partition": facts.partition_key,
        "snapshots": held,
        "notes": [note for note in notes if note],
    }


def _about(facts: Facts) -> dict[str, Any]:
    """Return names, progress, hashes and versions of a run."""
    result = facts.run.result or {}
    hashes = {"partition": facts.partition_hash, "dataset": facts.dataset_hash}
    return {
        "name": facts.name,
        "path": str(facts.run.path),
        "dataset": facts.dataset,
        "seed": facts.run.seed,
        "rounds": facts.rounds,
        "planned": facts.planned,
        "finished": facts.finished,
        "wdr": facts.wdr,
        "hashes": {**hashes, "config": (result.get("hashes") or {}).get("config")},
        "versions": result.get("versions") or {},
        "hardware": _hardware(facts),
    }


def _hardware(facts: Facts) -> str:
    about = (facts.run.result or {}).get("hardware") or {}
    kept = [
        f"{name} {about[name]}"
        for name in ("machine", "cores", "accelerator", "engine")
        if name in about
    ]
    return ", ".join(kept)
