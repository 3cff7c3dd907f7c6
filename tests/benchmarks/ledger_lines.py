"""Lines of a ledger written by hand."""

from cwfed.records.identity import config_hash


def make_line(cell, received, post_local=None, *, seed=0, **changes):
    """Return a line whose curves start with the initialisation's accuracy."""
    post_local = post_local or [None, *received[1:]]
    curves = {"received": received, "post_local": post_local}
    config = {"cell": cell, "seed": seed, "rounds": len(received) - 1}
    key = config_hash(config)
    line = {
        "key": key,
        "seed": seed,
        "rounds": len(received) - 1,
        "table": "hand",
        "row": "a",
        "column": "one",
        "profile": "paper",
        "cell": cell,
        "config_hash": key,
        "partition_hash": "5" * 64,
        "dataset": "digits",
        "metrics": {
            **{metric: _select(curve) for metric, curve in curves.items()},
            "mean_R": 0.5,
            "bytes": {"up": 2_000_000.0, "down": 3_000_000.0},
            "seconds": 8.0,
        },
        "curves": curves,
        "hardware": {"machine": "x86_64", "cpu": "one", "cores": 2, "accelerator": "cpu"},
        "versions": {"cwfed": "0.1.0", "torch": "2.14"},
        "config": config,
    }
    return line | changes


def _select(curve):
    scored = [(value, number) for number, value in enumerate(curve) if number and value is not None]
    best = max(scored, key=lambda pair: (pair[0], -pair[1]))
    quoted = [{"accuracy": value, "round": number} for value, number in (best, scored[-1])]
    return {"best": quoted[0], "last": quoted[1], "val_selected": None, "fairness": None}
