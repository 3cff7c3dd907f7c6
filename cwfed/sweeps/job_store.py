"""The folder in which jobs leave their files, and the state of a job by these.

Below ``RUNS/cells`` a job has a run folder and beside it, under the same name, ``.yaml`` (the
resolved configuration), ``.log`` (what was printed), ``.failed.json`` (why it failed) and
``.lock``.
"""

import json
import shutil
from contextlib import suppress
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path

from cwfed.config.files import UsageError
from cwfed.messages.checks import require_mapping
from cwfed.processes.children import explain
from cwfed.processes.lock import Lock, is_locked, try_lock
from cwfed.records.atomic import write_atomic
from cwfed.records.files import read_yaml, write_json
from cwfed.records.finished import read_result
from cwfed.records.identity import config_hash
from cwfed.records.manifest import Manifest
from cwfed.records.names import CONFIG, PARTITION, ROUNDS
from cwfed.records.plain_yaml import dump_yaml
from cwfed.records.reading import load_json, read_text, require_no_link, require_no_links
from cwfed.records.round_lines import read_rounds
from cwfed.sweeps.finished import find_finished, run_key
from cwfed.sweeps.jobs import Job, Resolver, places_of, read_config

DONE, SKIPPED, FAILED, RUNNING, STARTED, OPEN = (
    "done",
    "skipped",
    "failed",
    "running",
    "interrupted",
    "to do",
)
_SUFFIXES = (".yaml", ".log", ".failed.json", ".lock")
_TAIL = 20


class JobStore:
    """The files of all jobs.

    Args:
        runs: The folder; runs anywhere below it are found.
    """

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.cells = runs / "cells"
        self._partitions: dict[str, str | None] = {}

    @cached_property
    def _finished(self) -> dict[str, list[Path]]:
        return find_finished(self.runs)

    @cached_property
    def _resolver(self) -> Resolver:
        return Resolver()

    @cached_property
    def _older_names(self) -> dict[str, str]:
        """Names that an earlier version gave to jobs, by what is their identity now."""
        names: dict[str, str] = {}
        for path in sorted([*self.cells.glob("*.yaml"), *self.cells.glob(f"*/{CONFIG}")]):
            name = path.stem if path.parent == self.cells else path.parent.name
            with suppress(ValueError, TypeError):
                key = config_hash(read_yaml(path, "a configuration"))
                if not name.endswith(key[:12]):
                    names.setdefault(key, name)
        return names

    def _name(self, job: Job) -> str:
        """Return the name of a job's files: an earlier one where there are files under it."""
        if (self.cells / f"{job.name}.yaml").exists() or (self.cells / job.name).exists():
            return job.name
        return self._older_names.get(job.key, job.name)

    def folder(self, job: Job) -> Path:
        """Return the run folder of a job."""
        return self.cells / self._name(job)

    def file(self, job: Job, suffix: str) -> Path:
        """Return a file beside a job's run folder."""
        return self.cells / f"{self._name(job)}{suffix}"

    def state(self, job: Job) -> tuple[str, str]:
        """Return what has become of a job, in a word, and why or where; looks, never starts."""
        if job.skip:
            return SKIPPED, job.skip
        conflict = self.conflict(job)
        if conflict:
            return FAILED, conflict
        done = read_result(self.folder(job)) and self.folder(job)
        done = done or next(iter(self._finished.get(job.key, [])), None)
        if done:
            return DONE, str(done)
        if is_locked(self.folder(job)):
            return RUNNING, str(self.folder(job))
        failure = self.failure(job)
        if failure:
            return FAILED, failure
        rounds = self.rounds_done(job)
        if rounds:
            return STARTED, f"after round {rounds} of {job.rounds}"
        return OPEN, ""

    def result_folder(self, job: Job) -> Path | None:
        """Return the folder of the job's finished run: its own, or one made by hand.

        A run made elsewhere counts if its configuration and its partition are the job's.
        """
        own = self.folder(job)
        if read_result(own):
            return own
        for folder in self._finished.get(job.key, []):
            result = read_result(folder)
            if result and result["hashes"]["partition"] == self._partition(job):
                return folder
        return None

    def conflict(self, job: Job) -> str | None:
        """Return why the run in the job's folder is not the job's, or None.

        Somebody may have made it longer or changed it. A key leaves out where files are: another
        file in the same place, or another place, would be taken for the run that is there.
        """
        folder = self.folder(job)
        try:
            self._require_own_files(job)
            found = _configuration(folder)
            if found not in (None, job.key):
                return (
                    f"{folder}: expected the run {job.key[:12]}, got {found[:12]}: made longer or "
                    "changed since; move it away"
                )
            return self._other_partition(job, folder / PARTITION)
        except (ValueError, OSError) as error:
            return str(error)

    def _require_own_files(self, job: Job) -> None:
        """Raise a ValueError for links, through which a runner would write elsewhere."""
        beside = [self.file(job, suffix) for suffix in _SUFFIXES]
        for path in (self.cells, self.folder(job), *beside):
            require_no_link(path, "runs and their files lie in the folder of the runs itself")
        require_no_links(self.folder(job))

    def _other_partition(self, job: Job, path: Path) -> str | None:
        places = places_of(job.config)
        if not places or not path.is_file():
            return None
        found, expected = Manifest.load(path).hash, self._partition(job)
        if expected in (None, found):
            return None
        given = ", ".join(f"{name} {place}" for name, place in places.items())
        return (
            f"{path.parent}: expected a run of the partition {str(expected)[:12]} ({given}), got "
            f"one of {found[:12]}; give this table --runs and --ledger of its own"
        )

    def claim(self, job: Job) -> Lock | None:
        """Take the right to run the job; None while another process runs it."""
        self.cells.mkdir(parents=True, exist_ok=True)
        held = try_lock(self.file(job, ".lock"))
        if held and is_locked(self.folder(job)):
            held.release()
            return None
        return held

    def prepare(self, job: Job) -> list[str]:
        """Write the job's configuration; return the command that starts or continues its run."""
        folder = self.folder(job)
        self.file(job, ".failed.json").unlink(missing_ok=True)
        write_atomic(self.file(job, ".yaml"), dump_yaml(dict(job.config)))
        if (folder / CONFIG).is_file():
            data_dir = job.config.get("data_dir")
            place = ["--data_dir", str(data_dir)] if data_dir else []
            return ["fit", "--resume", str(folder), *place]
        if folder.exists():
            # A run that was killed before it had a configuration has nothing to continue from.
            shutil.rmtree(folder)
        return ["fit", "--config", str(self.file(job, ".yaml")), "--run_dir", str(folder)]

    def rounds_done(self, job: Job) -> int:
        """Return how many rounds of an unfinished run are on the disk."""
        return max(len(read_rounds(self.folder(job) / ROUNDS).lines) - 1, 0)

    def fail(self, job: Job, code: int) -> str:
        """Keep the reason for a failure in a small file; return it in a line."""
        log = self.file(job, ".log")
        lines = (
            log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
        )
        said = next((line for line in reversed(lines) if line.strip()), "")
        reason = f"{explain(code)}: {said}" if code > 0 and said else explain(code)
        failure = {
            "reason": reason,
            "exit_code": code,
            "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "job": job.label,
            "key": job.key,
            "log": lines[-_TAIL:],
        }
        write_json(self.file(job, ".failed.json"), failure)
        return reason

    def failure(self, job: Job) -> str | None:
        """Return why a job failed, or None."""
        path = self.file(job, ".failed.json")
        try:
            kept = require_mapping(load_json(read_text(path)), "it")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            return f"{path}: cannot be read"
        return str(kept.get("reason"))

    def _partition(self, job: Job) -> str | None:
        """Return the hash of the job's partition; None if its data cannot be had."""
        parts = ("data", "partition", "seed", "val_fraction")
        which = json.dumps([job.config[name] for name in parts], sort_keys=True)
        if which not in self._partitions:
            self._partitions[which] = self._divide(job)
        return self._partitions[which]

    def _divide(self, job: Job) -> str | None:
        self.cells.mkdir(parents=True, exist_ok=True)
        path = self.file(job, ".yaml")
        write_atomic(path, dump_yaml(dict(job.config)))
        place = job.config.get("data_dir")
        try:
            _, manifest = read_config(path, self._resolver).divide(Path(place) if place else None)
        except (UsageError, ValueError, OSError):
            return None
        return manifest.hash


def _configuration(folder: Path) -> str | None:
    """Return the hash of the configuration of the run in a folder; None if there is none."""
    finished, path = run_key(folder), folder / CONFIG
    if finished:
        return finished
    return config_hash(read_yaml(path, "a configuration")) if path.is_file() else None
