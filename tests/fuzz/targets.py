"""What is fuzzed: each target reads bytes as one kind of file, which may only fail politely."""

import hashlib
import json
import pickle
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cwfed.cli.main import main
from cwfed.config.files import UsageError, order_arguments
from cwfed.config.parser import absolute_paths, add_fit_options, make_parser, parse, plain
from cwfed.config.trust import restrict_imports
from cwfed.data.arrays_unpickler import unpickle_arrays
from cwfed.processes.lock import unlocked_afterwards
from cwfed.records.checksums import sealed
from cwfed.records.manifest import Manifest
from cwfed.records.run import Run
from cwfed.runs.checkpoint import load_newest

from .mutate import Mutate, mutate_bytes
from .whole import RESUMED, ROUNDS, SHOWN, Resumed, Shown, Whole

POLITE = (ValueError, UsageError, OSError)
"""How a reader may refuse a file; the message must say something."""

RUN_FILES = ("config.yaml", "result.json", "rounds.jsonl", "clients.csv", "labels.json", "snapshot")


@dataclass(frozen=True)
class Target:
    """A reader under test.

    Attributes:
        seeds: Sound files to start from.
        prepare: Puts bytes where the reader looks for them; may write.
        read: Reads them; may not.
        mutate: Makes other bytes of some.
        whole: Whether `read` is a command on its whole way, which writes, and may not fail at all.
        parts: The targets that this one stands for, chosen by the first byte.
    """

    seeds: list[bytes]
    prepare: Callable[[bytes], None]
    read: Callable[[], object]
    mutate: Mutate = mutate_bytes
    whole: bool = False
    parts: tuple["Target", ...] = ()

    def chosen(self, data: bytes) -> tuple["Target", bytes]:
        """Return whom bytes are for, and what it gets."""
        if not self.parts:
            return self, data
        return (self.parts[data[0] % len(self.parts)] if data else self.parts[0]), data[1:]


def make_target(name: str, folder: Path) -> Target:
    """Return a target by name; it keeps its files in the folder."""
    return _MAKERS[name](folder)


READERS = ("config", "manifest", "run", "checkpoint", "arrays")
WHOLE = ("resume", "page")
TARGETS = (*READERS, *WHOLE)
ALL = "all"
"""Every target in one, chosen by the first byte: one process, started once."""


def make_all(folder: Path) -> Target:
    """Return all targets as one."""
    parts = []
    for name in TARGETS:
        (folder / name).mkdir()
        parts.append(make_target(name, folder / name))
    seeds = [bytes([number]) + data for number, part in enumerate(parts) for data in part.seeds]

    def mutate(rng: random.Random, data: bytes) -> bytes:
        number = data[0] % len(parts) if data else 0
        return bytes([number]) + parts[number].mutate(rng, data[1:])

    return Target(seeds, parts[0].prepare, parts[0].read, mutate, parts=tuple(parts))


def _config(folder: Path) -> Target:
    # Importing what a damaged name happens to hit is not the reader's doing.
    restrict_imports([])
    path = folder / "a.yaml"
    parser = make_parser("fit", "")
    add_fit_options(parser)
    command = ["--config", "quickstart", "--config", str(path)]
    seeds = [
        (_small_run() / "config.yaml").read_bytes(),
        b"client: {optimizer: {class_path: os.system, init_args: {command: ls}}}",
        b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
        b"algorithm: {objectives: [{class_path: WDR}], head: {class_path: CosineClassifier}}",
    ]

    def read() -> object:
        config = parse(parser, order_arguments(command))
        absolute_paths(config)
        return plain(parser, config)

    return Target(seeds, path.write_bytes, read)


def _manifest(folder: Path) -> Target:
    path = folder / "partition.json"
    seeds = [(_small_run() / "partition.json").read_bytes()]
    return Target(seeds, path.write_bytes, lambda: Manifest.load(path))


def _arrays(folder: Path) -> Target:
    """A client's images and labels, as PFLlib pickles them."""
    path = folder / "arrays.pickle"
    held = {"x": np.zeros((2, 1, 2, 2), dtype=np.float32), "y": np.arange(2)}
    seeds = [pickle.dumps(np.array(held, dtype=object), protocol) for protocol in (3, 4)]
    return Target(seeds, path.write_bytes, lambda: unpickle_arrays(path.read_bytes()))


def _run(folder: Path) -> Target:
    """The first byte says which file of a run folder the others replace."""
    sound = {name: _run_file(_small_run(), name).read_bytes() for name in RUN_FILES}
    for name in RUN_FILES:
        _run_file(folder, name).parent.mkdir(exist_ok=True)

    def prepare(data: bytes) -> None:
        for name, content in sound.items():
            _run_file(folder, name).write_bytes(content)
        name = RUN_FILES[data[0] % len(RUN_FILES)] if data else RUN_FILES[0]
        _run_file(folder, name).write_bytes(data[1:])

    seeds = [bytes([number]) + sound[name] for number, name in enumerate(RUN_FILES)]
    return Target(seeds, prepare, lambda: _look_at_everything(folder))


def _look_at_everything(folder: Path) -> None:
    run = Run.load(folder)
    properties = [name for name in dir(Run) if not name.startswith("_")]
    looks = [lambda name=name: getattr(run, name) for name in properties]
    looks += [run.label_counts, run.accuracy, lambda: run.accuracy("post_local")]
    looks += [lambda round_=round_: run.snapshot(round_).p_estimated_MK for round_ in (None, 1)]
    refused = None
    for look in looks:
        try:
            look()
        except POLITE as error:
            refused = error
    if refused:
        raise refused


def _checkpoint(folder: Path) -> Target:
    """A file of tensors under a right seal; what begins with a brace replaces the seal."""
    saved = max((_small_run() / "checkpoints").glob("*.pt"))
    tensors = saved.read_bytes()
    seal = json.loads(saved.with_suffix(".json").read_text())
    path = folder / saved.name

    def prepare(data: bytes) -> None:
        own = data.startswith(b"{")
        path.write_bytes(tensors if own else data)
        made = sealed({**seal, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()})
        path.with_suffix(".json").write_bytes(data if own else json.dumps(made).encode())

    seeds = [tensors, json.dumps(seal).encode()]
    return Target(seeds, prepare, lambda: load_newest(folder, seal["identity"]))


def _resume(folder: Path) -> Target:
    return _whole(Resumed(_long_run(), folder / "resume", RESUMED))


def _page(folder: Path) -> Target:
    return _whole(Shown(_long_run(), folder / "page", SHOWN))


def _whole(way: Whole) -> Target:
    return Target(way.seeds(), way.prepare, way.read, way.mutate, whole=True)


_MAKERS: dict[str, Callable[[Path], Target]] = {
    "config": _config,
    "manifest": _manifest,
    "run": _run,
    "checkpoint": _checkpoint,
    "arrays": _arrays,
    "resume": _resume,
    "page": _page,
}


def _run_file(folder: Path, name: str) -> Path:
    return folder / "snapshots" / "round_000001.npz" if name == "snapshot" else folder / name


_made: list[tempfile.TemporaryDirectory] = []


def _small_run() -> Path:
    """Return the folder of a run of one round, made once for the process."""
    return _made_run("small", 1)


def _long_run() -> Path:
    """Return the folder of a run of some rounds that has kept all its checkpoints."""
    return _made_run("long", ROUNDS)


def _made_run(name: str, rounds: int) -> Path:
    if not _made:
        _made.append(tempfile.TemporaryDirectory(prefix="cwfed-fuzz-"))
    folder = Path(_made[0].name) / name
    if folder.exists():
        return folder
    options = {
        "data": "SyntheticImages",
        "data.num_classes": "3",
        "data.samples_per_class": "20",
        "data.image_size": "16",
        "partition.num_clients": "3",
        "model.hidden_features": "2",
        "rounds": str(rounds),
        "checkpoint.keep": str(rounds),
        "trainer.engine": "sequential",
        "trainer.accelerator": "cpu",
        "run_dir": str(folder),
    }
    command = [part for name, value in options.items() for part in (f"--{name}", value)]
    with unlocked_afterwards():
        if main(["fit", "--config", "quickstart", *command]):
            sys.exit("the run that the fuzzer starts from failed")
    return folder
