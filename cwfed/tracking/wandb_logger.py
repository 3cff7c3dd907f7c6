"""Weights & Biases: rounds, clients, heat maps, models and the partition of a run.

The package ``wandb`` is imported only when it is used, here and in the other modules named for it.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from cwfed.federated.callbacks import LoopCallback
from cwfed.federated.kept_models import ModelKeeper
from cwfed.federated.loop import FederatedLoop
from cwfed.federated.record import RoundRecord
from cwfed.federated.state import FederatedState
from cwfed.processes.signals import uninterrupted
from cwfed.records.atomic import write_atomic
from cwfed.records.identity import config_hash
from cwfed.records.manifest import Manifest
from cwfed.records.names import LABELS, PARTITION, ROUNDS
from cwfed.records.reading import read_text
from cwfed.records.regulariser import largest_weight
from cwfed.records.round_lines import read_lines
from cwfed.records.run_files import load_labels
from cwfed.records.scalars import flatten
from cwfed.records.versions import versions
from cwfed.tracking.client_plots import summarise_run
from cwfed.tracking.optional import GoingOn
from cwfed.tracking.wandb_media import RoundMedia
from cwfed.tracking.wandb_options import WandbMode, WandbOptions
from cwfed.tracking.wandb_record import LoggedRounds, wait_until_written
from cwfed.tracking.wandb_upload import Upload, say_how_to_upload

log = logging.getLogger("cwfed")

RUN_ID = "wandb_id.txt"
"""File of the run folder that holds the id under which Weights & Biases knows the run."""

_NOT_LOGGED = ("run_dir", "data_dir", "logger", "wandb")
_PATIENCE = 300.0
"""Seconds that the end of a run waits for what is not uploaded yet."""


class WandbReporter(LoopCallback):
    """Sends a run to Weights & Biases; what goes wrong there never stops the run.

    A resumed run continues the same W&B run. Rounds that are there already, logged after the
    checkpoint that the run continues from, are not logged again; rounds up to it that are missing
    there are logged from ``rounds.jsonl``.

    Args:
        folder: The run folder.
        options: Where the run goes and what is logged.
        config: The resolved configuration.
        mode: What `log_in` said.
    """

    def __init__(
        self, folder: Path, options: WandbOptions, config: Mapping[str, Any], mode: WandbMode
    ) -> None:
        # W&B's files name their place, and are uploaded from other folders.
        self.folder = folder.absolute()
        self.options = options
        self.config = config
        self.mode = mode
        self.loop: FederatedLoop
        self.media: RoundMedia
        self.run: Any = None
        self.keeper = ModelKeeper(self.folder) if options.models else None
        self._lines: list[dict[str, Any]] = []
        self._logged: set[int] = set()
        self._given: set[int] = set()
        self._record = LoggedRounds(self.folder)
        self._ended = False
        self._going_on = GoingOn("W&B")
        self._upload = Upload(mode == "online", _PATIENCE, self._going_on)

    def on_start(self, loop: FederatedLoop, state: FederatedState) -> None:
        """Start or continue the W&B run; log the configuration and the partition."""
        self.loop = loop
        self.media = RoundMedia(loop, self._classes(), self.options.heatmaps)
        self._lines = read_lines(self.folder / ROUNDS)
        with self._going_on():
            if self.keeper:
                self.keeper.start(self._lines, loop.received_models(state))
            self._start()
            for line in self._lines:
                if line["round"] not in self._logged:
                    self._log(line["round"], flatten(line))
        if self.run is not None and not self._logged:
            with self._going_on(), self._staged():
                self._log_partition()

    def on_round(self, record: RoundRecord, state: FederatedState) -> None:
        """Log the round, unless it is there already, and what the run has come to."""
        line = record.to_line()
        self._lines.append(line)
        # An interrupt that comes while figures are freed would be lost: Python drops what is
        # raised there.
        with uninterrupted(), self._going_on():
            if self.keeper:
                self.keeper.keep(line, self.loop.received_models(state))
            if self.run is not None:
                if record.round not in self._logged:
                    self._log(record.round, flatten(line), lambda: self.media.of(record, state))
                self.run.summary.update(summarise_run(self._lines))

    def on_end(self, state: FederatedState) -> None:
        """Log the best and the last models."""
        self._ended = True
        if self.run is not None and self.keeper:
            with self._going_on(), self._staged():
                self.keeper.keep_last(self._lines[-1], self.loop.received_models(state))
                self._log_models(self.keeper)

    def close(self) -> None:
        """End the W&B run; one that was interrupted is marked as failed until it is resumed."""
        run, self.run = self.run, None
        if run is None:
            return
        uploaded = False
        try:
            uploaded = self._upload.finish(run, 0 if self._ended else 1)
        except KeyboardInterrupt:
            # Once the run is over, it cuts the wait short and nothing else.
            if not self._ended:
                raise
        finally:
            with self._going_on():
                self._say_what_is_left(run, uploaded)

    def _say_what_is_left(self, run: Any, uploaded: bool) -> None:
        own = Path(run.dir).parent
        if self.mode == "offline":
            wait_until_written(own / f"run-{run.id}.wandb")
        if not self._going_on.failed:
            self._record.add(own, self._given)
        if self.mode == "offline":
            # `wandb sync` stumbles over folders of processes that were killed.
            say_how_to_upload(sorted({*self._record.by_folder(self._folders(run)), own}))
        elif not uploaded and self._ended:
            say_how_to_upload([own])
        elif not uploaded:
            log.info("W&B: not everything was uploaded; a resumed run uploads what is missing")

    def _classes(self) -> list[str]:
        """Return the names of the classes; none where a folder is older than the file of them."""
        path = self.folder / LABELS
        return list(load_labels(path)["classes"]) if path.is_file() else []

    def _start(self) -> None:
        import wandb

        options = self.options
        self.run = run = wandb.init(
            project=options.project,
            entity=options.entity,
            group=options.group or default_group(self.config),
            job_type=options.job_type or self.config["algorithm"]["name"],
            name=options.name or self.folder.name,
            tags=[*options.tags, f"seed {self.config['seed']}"],
            id=self._run_id(),
            resume="allow",
            mode=self.mode,
            dir=str(self.folder),
            reinit="create_new",
            settings=self._upload.settings(),
        )
        self._upload.listen()
        for handler in logging.getLogger("wandb").handlers:
            # Where the disk is too full for W&B's own log, it would print tracebacks.
            handler.handleError = lambda record: None  # type: ignore[method-assign]
        run.config.update(self._about(), allow_val_change=True)
        run.define_metric("round")
        run.define_metric("*", step_metric="round")
        self._logged = self._rounds_there(run)
        if self.mode == "online":
            log.info("W&B: %s", run.url)

    def _run_id(self) -> str:
        path = self.folder / RUN_ID
        if not path.is_file():
            write_atomic(path, f"{uuid4().hex[:12]}\n")
        # W&B names its folder by it.
        found = read_text(path, 1000).strip()
        if not re.fullmatch(r"[\w-]{1,64}", found, re.ASCII):
            raise ValueError(f"{path}: expected the id of a run, got {found[:60]!r}")
        return found

    def _about(self) -> dict[str, Any]:
        """Return the configuration less who is told and where, and what identifies the run."""
        logged = {name: v for name, v in self.config.items() if name not in _NOT_LOGGED}
        logged["cwfed"] = {
            "version": versions()["cwfed"],
            "config_hash": config_hash(self.config),
            "partition_hash": Manifest.load(self.folder / PARTITION).hash,
            "wdr_lambda": largest_weight(self.config),
        }
        return logged

    def _folders(self, run: Any) -> list[Path]:
        """Return W&B's folders of the run, of every process that was on it."""
        # Of two that begin in the same second, the later one's name ends in -1.
        return sorted((self.folder / "wandb").glob(f"*run-*-{run.id}*"))

    def _rounds_there(self, run: Any) -> set[int]:
        """Return the rounds that W&B has: the server's word for it, or else our own record."""
        if self.mode == "online":
            return set(range(run.starting_step)) if run.resumed else set()
        return set().union(*self._record.by_folder(self._folders(run)).values())

    def _log(
        self,
        round_: int,
        figures: Mapping[str, Any],
        draw: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        with self._staged():
            try:
                self._log_row(round_, {**figures, **draw()})
            except Exception:
                # A picture needs the disk and a table the server; the numbers do without.
                self._log_row(round_, figures)
                raise

    def _log_row(self, round_: int, values: Mapping[str, Any]) -> None:
        self.run.log({"round": round_, **values}, step=round_, commit=True)
        self._given.add(round_)

    def _log_partition(self) -> None:
        import wandb

        manifest = Manifest.load(self.folder / PARTITION)
        artifact = wandb.Artifact(f"partition-{manifest.hash[:12]}", type="partition")
        for name in (PARTITION, LABELS):
            if (self.folder / name).is_file():
                artifact.add_file(str(self.folder / name), policy="immutable")
        self.run.log_artifact(artifact)

    def _log_models(self, keeper: ModelKeeper) -> None:
        import wandb

        for kept in keeper.files():
            artifact = wandb.Artifact(
                f"models-{self.run.id}",
                type="model",
                metadata={"round": kept.round, "received_accuracy": kept.accuracy},
            )
            artifact.add_file(str(kept.path), name="models.pt", policy="immutable")
            self.run.log_artifact(artifact, aliases=[*kept.names, f"round-{kept.round}"])

    @contextmanager
    def _staged(self) -> Iterator[None]:
        """Let W&B keep what it will upload in the run folder, not in the user's home.

        Before it takes an artifact it asks the server for another of that name, and waits for the
        answer; it does without one in the end.
        """
        name, before = "WANDB_DATA_DIR", os.environ.get("WANDB_DATA_DIR")
        os.environ[name] = before or str(self.folder / "wandb")
        try:
            with self._upload.said_when_slow("waiting for the server to answer"):
                yield
        finally:
            if before is None:
                del os.environ[name]


def default_group(config: Mapping[str, Any]) -> str:
    """Return data set and partition in words: runs that can be compared."""
    data = config["data"]["class_path"].rpartition(".")[2]
    partition = config["partition"]["class_path"].rpartition(".")[2]
    arguments = config["partition"].get("init_args") or {}
    said = [f"{name}={v}" for name, v in arguments.items() if name != "path" and v is not None]
    return f"{data}/{partition}({', '.join(said)})"[:128]
