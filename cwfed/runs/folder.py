"""The run folder: everything needed to trust and repeat a result."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cwfed.federated.kept_models import FOLDER, LAST
from cwfed.federated.state import FederatedState
from cwfed.functional.distribution import label_distribution
from cwfed.processes.lock import LOCK, lock_folder
from cwfed.records.atomic import is_temporary, remove_temporaries, write_atomic
from cwfed.records.files import read_yaml, write_sealed
from cwfed.records.identity import identities
from cwfed.records.manifest import Manifest
from cwfed.records.names import CHECKPOINTS, CLIENTS, CONFIG, LABELS, PARTITION, RESULT, ROUNDS
from cwfed.records.plain_yaml import dump_yaml
from cwfed.records.reading import require_no_links
from cwfed.records.round_lines import METRICS, Recorded, line_text, read_rounds
from cwfed.records.run_files import load_labels, load_result
from cwfed.runs.checkpoint import load_newest, reseal
from cwfed.runs.prepared import PreparedRun

log = logging.getLogger("cwfed")


def require_empty(folder: Path) -> None:
    """Raise a ValueError if the folder holds anything or is no folder.

    What a kill has left of the first file does not count, nor does the folder's lock.
    """
    if folder.exists() and (
        not folder.is_dir()
        or not all(is_temporary(path) or path.name == LOCK for path in folder.iterdir())
    ):
        is_run = (folder / CONFIG).is_file()
        hint = f"a run: continue it with --resume {folder}" if is_run else "something already"
        raise ValueError(
            f"run_dir: expected an empty or new folder, got {folder}, which holds {hint}"
        )


class RunFolder:
    """Writes and reads the files of one run.

    Args:
        path: The folder; made if missing.
        config: The resolved configuration, as plain values.
    """

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self.path = path
        self.config = config

    def create(self, run: PreparedRun) -> FederatedState | None:
        """Write the configuration and the partition into a new folder; there is no state yet."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock_folder(self.path)
        require_empty(self.path)
        self._clean()
        # Written first: a folder with a configuration is one that can be resumed.
        self._write_config(self.config)
        self._write_division(run)
        return None

    def _write_division(self, run: PreparedRun) -> None:
        """Write who holds which samples, and how many of each class."""
        run.data.manifest.save(self.path / PARTITION)
        write_sealed(self.path / LABELS, label_record(run))

    def identity(self, run: PreparedRun) -> str:
        """Return the hash that a checkpoint must carry to belong to this run.

        The number of rounds is no part of it: what a round does does not depend on what follows.
        """
        return _identities(self.config, run)[0]

    def _stored(self) -> dict[str, Any]:
        """Return the configuration as the folder has it."""
        return dict(read_yaml(self.path / CONFIG))

    def restore(self, run: PreparedRun, initial: FederatedState) -> FederatedState | None:
        """Return the newest good state, and cut ``rounds.jsonl`` back to it.

        Where the configuration has more rounds than the folder's, the folder's run is made longer:
        its result goes, its rounds stay.

        Args:
            run: The run.
            initial: Its state before the first round; what is returned is of the same kind.

        Raises:
            ValueError: The folder holds links, its partition or checkpoint is of another run, or
                there is none that a finished run could go on from.
        """
        lock_folder(self.path)
        require_no_links(self.path)
        self._clean()
        stored = self._stored()
        if self.config["rounds"] < stored.get("rounds", 0):
            # Another process may have made it longer since this one read it.
            raise ValueError(
                f"rounds: expected at least the {stored['rounds']} of the run in {self.path}, got "
                f"{self.config['rounds']}"
            )
        damage = self._division_damage(run)
        state = self._restore_state(run, initial, stored, damage)
        if damage:
            log.info("%s; made again from the configuration and the data", damage)
            self._write_division(run)
        return state

    def mend(self, run: PreparedRun) -> None:
        """Make ``partition.json`` and ``labels.json`` of a finished run again.

        Raises:
            ValueError: The result is of another partition than configuration and data give.
        """
        lock_folder(self.path)
        made, kept = run.data.manifest.hash, load_result(self.path / RESULT)["hashes"]["partition"]
        if made != kept:
            raise ValueError(
                f"{self.path / PARTITION}: expected the partition of the run ({kept[:12]}) from "
                f"the configuration and the data, got {made[:12]}: the data set has changed"
            )
        self._write_division(run)

    def _division_damage(self, run: PreparedRun) -> str | None:
        """Return why partition and label counts have to be written again, if they have.

        Raises:
            ValueError: The partition is whole, and is another one than the run's.
        """
        path, ours = self.path / PARTITION, run.data.manifest
        if not path.exists():
            return f"{path} is missing"
        try:
            kept = Manifest.load(path)
        except ValueError as error:
            return str(error)
        if kept.hash != ours.hash:
            raise ValueError(
                f"{path}: expected the partition that the configuration and the data give "
                f"({ours.hash[:12]}), got {kept.hash[:12]}: the data set or the configuration has "
                f"changed"
            )
        if kept.to_json() != ours.to_json():
            return f"{path}: expected what the configuration and the data give, got something else"
        return self._labels_damage(run)

    def _labels_damage(self, run: PreparedRun) -> str | None:
        path = self.path / LABELS
        if not path.exists():
            return f"{path} is missing"
        try:
            same = load_labels(path) == label_record(run)
        except ValueError as error:
            return str(error)
        return None if same else f"{path}: expected the label counts of the data, got others"

    def _restore_state(
        self,
        run: PreparedRun,
        initial: FederatedState,
        stored: dict[str, Any],
        damage: str | None,
    ) -> FederatedState | None:
        found = read_rounds(self.path / ROUNDS)
        folder, last = self.path / CHECKPOINTS, len(found.lines) - 1
        identity, earlier = self.identity(run), _identities(stored, run)
        if identity != earlier[0]:
            earlier = ()  # another run than the folder's, whatever its checkpoints carry
        try:
            state = load_newest(folder, identity, initial, last, earlier)
            self._require_state(state, stored)
        except ValueError as error:
            said = [text for text in (damage, found.damage) if text]
            raise ValueError("; ".join([*said, str(error)])) from error
        if state and state.round > self.config["rounds"]:
            raise ValueError(
                f"{self.path / CONFIG}: rounds: expected at least the {state.round} that the run "
                f"has, got {self.config['rounds']}"
            )
        if stored.get("rounds", self.config["rounds"]) != self.config["rounds"]:
            self._begin_longer()
            reseal(folder, earlier, identity)
        self._keep_changes(stored)
        self._cut(found, state.round + 1 if state else 0)
        return state

    def _require_state(self, state: FederatedState | None, stored: dict[str, Any]) -> None:
        """Check that a run with a result has a checkpoint: else it would be run anew as a whole."""
        if state is None and stored.get("rounds") and (self.path / RESULT).exists():
            raise ValueError(
                f"{self.path / CHECKPOINTS}: expected a checkpoint from which the finished run "
                f"can go on, got none; start a new run"
            )

    def _begin_longer(self) -> None:
        """Take from a run that was to have fewer rounds what makes it a finished one.

        The configuration changes after this: a kill in between leaves the shorter run, which only
        has to write its result again.
        """
        for path in (self.path / RESULT, self.path / CLIENTS, self.path / FOLDER / LAST):
            path.unlink(missing_ok=True)
        log.info("going on to round %s", self.config["rounds"])

    def _keep_changes(self, stored: dict[str, Any]) -> None:
        """Write what a resumed run does otherwise into its configuration."""
        changed = {n: self.config[n] for n in ("rounds", "faults") if n in self.config}
        if stored | changed != stored:
            self._write_config(stored | changed)

    def _write_config(self, config: Mapping[str, Any]) -> None:
        write_atomic(self.path / CONFIG, dump_yaml(dict(config)))

    def _clean(self) -> None:
        """Remove what a kill has left unfinished."""
        own = [path for path in self.path.iterdir() if path.is_dir() and not path.is_symlink()]
        remove_temporaries([self.path, *own])
        for path in (self.path / CHECKPOINTS).glob("*.pt.partial"):  # of earlier versions
            path.unlink(missing_ok=True)

    def _cut(self, found: Recorded, count: int) -> None:
        """Cut ``rounds.jsonl`` back to the rounds of the state; say what is repeated."""
        repeated = len(found.lines) - max(count, 1)
        if found.damage and (repeated > 0 or not found.cut):
            log.warning("%s; going on from the checkpoint before it", found.damage)
        if repeated > 0:
            log.info("%d recorded rounds have no checkpoint and are repeated", repeated)
        text = "".join(line_text(self._as_scored(line)) for line in found.lines[:count])
        write_atomic(self.path / ROUNDS, text)

    def _as_scored(self, line: dict[str, Any]) -> dict[str, Any]:
        """Return a line without the scores that a run has only because this was its last round."""
        round_ = line["round"]
        if round_ % self.config.get("evaluate_every", 1) == 0 or round_ == self.config["rounds"]:
            return line
        return line | dict.fromkeys(METRICS)


def _identities(config: Mapping[str, Any], run: PreparedRun) -> tuple[str, ...]:
    """Return what checkpoints of a run may carry: the current identity, then those of the past.

    The first checkpoints of version 0.1 had the number of rounds in it.
    """
    hashes = [*identities({**config, "rounds": None}), *identities(config)]
    texts = (f"{each}/{run.data.manifest.hash}" for each in hashes)
    return tuple(hashlib.sha256(text.encode()).hexdigest() for text in texts)


def label_record(run: PreparedRun) -> dict[str, Any]:
    """Return the content of ``labels.json``: names of the classes, counts by part, p by client."""
    counts = {
        "train": run.data.label_counts_MK("train", "holdout"),
        "val": run.data.label_counts_MK("val"),
        "test": run.data.label_counts_MK("test"),
    }
    return {
        "classes": list(run.data.images.class_names),
        "counts": {part: counts_MK.tolist() for part, counts_MK in counts.items()},
        "p": label_distribution(run.label_counts_MK()).tolist(),
    }


def division_damage(path: Path) -> str | None:
    """Return what is wrong with a run's partition or label counts, or which is missing."""
    try:
        for name, load in ((PARTITION, Manifest.load), (LABELS, load_labels)):
            if not (path / name).exists():
                return f"{path / name} is missing"
            load(path / name)
    except ValueError as error:
        return str(error)
    return None
