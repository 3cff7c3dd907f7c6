"""The whole way: a damaged run is resumed to its end, and shown on a page and in figures.

What must not happen is a traceback, a refusal that names no file, a page that one odd run keeps
from the others, or damage that passes: another content than the run's, without a word.
"""

import json
import random
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from benchmarks.faults.check import differences
from cwfed.cli.main import main
from cwfed.cli.plot import KINDS
from cwfed.processes.lock import unlocked_afterwards
from cwfed.runs.folder_writer import FolderWriter

from .harm import Harm
from .recipes import CHECKPOINT, FILES, apply, made_up, parsed

ROUNDS, STOPPED = 4, 2
"""Rounds of the run, and after how many of them the one that is resumed was killed."""

RESUMED = ("rounds.jsonl",) * 4 + ("labels.json", "partition.json", CHECKPOINT, CHECKPOINT)
SHOWN = ("rounds.jsonl",) * 3 + FILES
SUMMED = {"rounds.jsonl", "result.json", "labels.json", "partition.json", "clients.csv"}
"""Files in which damage can be seen: whatever does not fit its checksum is told."""


class Whole:
    """A way that a run folder goes, under recipes.

    Args:
        whole: A finished run of `ROUNDS` rounds that has kept all its checkpoints.
        folder: Where damaged copies go.
        files: What is damaged, the more often the more often it is named.
    """

    def __init__(self, whole: Path, folder: Path, files: tuple[str, ...]) -> None:
        self.whole = whole
        self.folder = folder / "run"
        self.page = folder / "page.html"
        self.files = files
        self.recipe: dict = {}
        self.before: dict = {}

    def seeds(self) -> list[bytes]:
        """Return texts of recipes to start from."""
        return [json.dumps(made_up(random.Random(n), self.whole, self.files)).encode()
                for n in range(3)]  # fmt: skip

    def mutate(self, rng: random.Random, data: bytes) -> bytes:
        """Return another recipe: at times an old one with a change more, mostly a new one."""
        made, old = made_up(rng, self.whole, self.files), parsed(data)
        if old and rng.random() < 0.2:
            made["changes"] += old["changes"][:2]
        return json.dumps(made).encode()

    def prepare(self, data: bytes) -> None:
        """Take a recipe; bytes that are none stand for the random one that they are the seed of."""
        self.recipe = parsed(data) or made_up(random.Random(data), self.whole, self.files)
        if self.folder.parent.exists():
            shutil.rmtree(self.folder.parent)
        self.folder.parent.mkdir()
        shutil.copytree(self.whole, self.folder)


class Resumed(Whole):
    """Killed after some rounds, damaged, and resumed to the end."""

    def read(self) -> None:
        """Resume; what comes out is the undamaged run, or a line that names a file."""
        _kill(self.folder)
        apply(self.recipe, self.folder)
        with _damaging_on_the_way(self.recipe, self.folder) as rounds:
            code, said = _run(["fit", "--resume", str(self.folder)])
        during = any(change.get("during") for change in self.recipe["changes"])
        if during and len(rounds) > 1 and code:
            raise Harm(f"noticed {len(rounds) - 1} rounds too late: {said}")
        if code:
            _require_named(said, self.folder, code)
            _, again = _run(["fit", "--resume", str(self.folder)])
            if "Traceback" in again:
                raise Harm(f"a traceback when it is resumed again: {again}")
        elif not self.recipe.get("own_sums"):
            different = differences(self.whole, self.folder)
            if different:
                raise Harm(f"resumed to other content: {different}")


class Shown(Whole):
    """Damaged, and shown beside a sound run."""

    def prepare(self, data: bytes) -> None:
        """Put a sound run beside the damaged one."""
        super().prepare(data)
        shutil.copytree(self.whole, self.folder.with_name("sound"))

    def read(self) -> None:
        """Write the page and a figure."""
        if not self.before:
            _run(["report", str(self.folder.parent), "-o", str(self.page)])
            self.before.update(_entry(self.page, "run") or {})
        apply(self.recipe, self.folder)
        code, said = _run(["report", str(self.folder.parent), "-o", str(self.page)])
        if code:
            raise Harm(f"one run keeps the others from the page: {said}")
        if _entry(self.page, "sound") is None:
            raise Harm(f"the sound run is not on the page: {said}")
        self._compare(_entry(self.page, "run"), said)
        kind = random.Random(json.dumps(self.recipe)).choice(list(KINDS))
        figure = self.page.with_name("figure.png")
        code, said = _run(["plot", kind, str(self.folder), "-o", str(figure)])
        if code:
            _require_named(said, self.folder, code)

    def _compare(self, after: dict | None, said: str) -> None:
        damaged = {change["file"] for change in self.recipe["changes"]}
        if not (self.folder / "result.json").exists():
            return  # as a kill before the end leaves it
        if after is None:
            if (self.folder / "config.yaml").exists() and str(self.folder) not in said:
                raise Harm(f"passed over without its name: {said}")
        elif damaged <= SUMMED and not self.recipe.get("own_sums"):
            told = said + " ".join(after.pop("notes"))
            different = [name for name in after if self.before[name] != after[name]]
            if different and not any(name in told for name in damaged):
                raise Harm(f"shown with other content ({', '.join(different)}): {said}")


def _kill(folder: Path) -> None:
    """Leave what a kill after some rounds leaves."""
    for name in ("result.json", "clients.csv"):
        (folder / name).unlink()
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (folder / "rounds.jsonl").write_text("".join(lines[: STOPPED + 1]))
    for path in (folder / "checkpoints").iterdir():
        if int(path.stem[-6:]) > STOPPED:
            path.unlink()


@contextmanager
def _damaging_on_the_way(recipe: dict, folder: Path) -> Iterator[list[int]]:
    """Apply what is to happen during the run before its next round is written; list the rounds."""
    rounds: list[int] = []
    write = FolderWriter.on_round

    def on_round(writer: FolderWriter, record: object, state: object) -> None:
        if not rounds:
            apply(recipe, folder, during=True)
        rounds.append(state.round)
        write(writer, record, state)

    with mock.patch.object(FolderWriter, "on_round", on_round):
        yield rounds


def _run(arguments: list[str]) -> tuple[int, str]:
    """Run a command in this process; return its exit code and all that it wrote."""
    # A file and no buffer in memory: some libraries ask for its descriptor.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as text:
        with redirect_stdout(text), redirect_stderr(text), unlocked_afterwards():
            code = main(arguments)
        text.seek(0)
        return code, text.read()


def _require_named(said: str, folder: Path, code: int) -> None:
    """Check that a refusal names a file or folder of the run."""
    if code not in (1, 2) or str(folder) not in "".join(_refusals(said)):
        raise Harm(f"refused without the name of a file, with {code}: {said}")


def _refusals(said: str) -> list[str]:
    """Return the lines in which a command says why it ends."""
    return [line for line in said.splitlines() if "continue with:" not in line]


def _entry(page: Path, name: str) -> dict | None:
    """Return what a page holds of a run; None if it is not there."""
    data = re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', page.read_text(), re.DOTALL)
    assert data
    runs = json.loads(data[1])["runs"]
    return next((run for run in runs if run["name"].rpartition("/")[2] == name), None)
