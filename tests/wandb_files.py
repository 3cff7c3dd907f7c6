"""What W&B's own files of a run folder hold, by W&B's own schema."""

import json

from cwfed.tracking.transaction_log import records


def files_of(folder):
    return sorted((folder / "wandb").glob("*run-*/*.wandb"))


def items(update):
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in update}


def history(folder):
    """Return the logged rows in the order of the files."""
    found = [record.history.item for path in files_of(folder) for record in records(path)]
    return [items(item) for item in found if item]


def summary(folder):
    """Return what the last file leaves of the summary."""
    found = {}
    for path in files_of(folder):
        for record in records(path):
            found |= items(record.summary.update)
    return found
