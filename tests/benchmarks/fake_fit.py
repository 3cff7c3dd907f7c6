"""Stands in for ``cwfed fit``: writes rounds at a pace, without training anything.

``fake_fit.py FOLDER ROUNDS SECONDS [deaf] [crowded]``: ``deaf`` ignores SIGTERM; ``crowded`` takes
longer the more of its kind are awake.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from cwfed.records.round_lines import append_line


def awake(folder):
    """Return how many of the processes that have left their number in a folder are not paused."""
    states = []
    for path in folder.glob("*.pid"):
        try:
            text = Path(f"/proc/{path.stem}/stat").read_text()
        except OSError:
            continue
        states.append(text.rpartition(")")[2].split()[0])
    return sum(state not in "TZ" for state in states)


def main(folder, rounds, seconds, *habits):
    if "deaf" in habits:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    folder.mkdir()
    trainer = {"engine": "vectorized", "kernel": "unfold", "memory_format": "contiguous"}
    (folder / "config.yaml").write_text(json.dumps({"trainer": trainer}))
    if "crowded" in habits:
        (folder.parent / f"{os.getpid()}.pid").touch()
    for round_ in range(rounds + 1):
        pace = seconds * (awake(folder.parent) ** 2 if "crowded" in habits else 1)
        time.sleep(pace if round_ else 0)
        score = {"accuracy": round_ / 100, "loss": 1.0, "fairness": {}, "correct": [round_]}
        line = {
            "round": round_,
            "participants": [],
            "received": score,
            "post_local": score if round_ else None,
            "mean_R": None,
            "bytes": {"up": [], "down": []},
            "seconds": {"fit": pace},
        }
        append_line(folder / "rounds.jsonl", line)
    (folder / "result.json").write_text("{}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:])
