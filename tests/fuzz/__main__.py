"""Fuzz one reader for some time: guided by coverage where atheris is installed, else blindly.

`pip install ".[fuzz]"` installs atheris; there are wheels of it for Linux.
"""

import argparse
import logging
import random
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

try:
    import atheris
except ImportError:
    atheris = None

with atheris.instrument_imports(include=["cwfed", "yaml", "json"]) if atheris else nullcontext():
    from .harm import Harm
    from .mutate import damaged
    from .targets import ALL, READERS, TARGETS, Target, make_all, make_target
    from .watch import MOST_SECONDS, check

CORPUS = Path(__file__).parent / "corpus"


def main() -> int:
    """Run until the time is over or something is found, which is saved and named."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=(*TARGETS, ALL))
    parser.add_argument("--seconds", type=int, default=60, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the damage (default: 0)")
    parser.add_argument("--blind", action="store_true", help="do not follow coverage")
    parser.add_argument("--go-on", action="store_true", help="list all that is found, blindly")
    given = parser.parse_args()
    logging.getLogger("cwfed").setLevel(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix=f"cwfed-fuzz-{given.target}-"))
    (folder / "files").mkdir()
    whole = given.target == ALL
    target = make_all(folder / "files") if whole else make_target(given.target, folder / "files")
    target.seeds.extend(found_before(given.target))
    if atheris and not (given.blind or given.go_on):
        return guided(target, folder, given.seconds, given.seed)
    return blind(target, folder, given.seconds, given.seed, given.go_on)


def found_before(name: str) -> list[bytes]:
    """Return the corpus of a target."""
    if name != ALL:
        return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
    # A whole way takes a second: seconds are better spent on new inputs than on its corpus, which
    # the tests go through.
    return [
        bytes([number]) + data for number, part in enumerate(READERS) for data in found_before(part)
    ]


def guided(target: Target, folder: Path, seconds: int, seed: int) -> int:
    """Let atheris look for inputs that reach new code; it ends the process itself."""
    (folder / "seeds").mkdir()
    for number, data in enumerate(target.seeds):
        (folder / "seeds" / str(number)).write_bytes(data)
    options = [
        f"-max_total_time={seconds}",
        f"-seed={seed + 1}",
        f"-artifact_prefix={folder}/found-",
        f"-timeout={int(4 * MOST_SECONDS)}",
        "-max_len=100000",
        "-rss_limit_mb=4096",
    ]
    arguments = [sys.argv[0], *options, str(folder / "seeds")]

    def other(data: bytes, most: int, number: int) -> bytes:
        rng = random.Random(number)
        return atheris.Mutate(data, most) if rng.random() < 0.5 else target.mutate(rng, data)[:most]

    atheris.Setup(arguments, lambda data: check(target, data), custom_mutator=other)
    atheris.Fuzz()
    return 0


def blind(target: Target, folder: Path, seconds: int, seed: int, go_on: bool) -> int:
    """Damage sound files at random places; end with the first harm, or list all."""
    end, tried, found = time.monotonic() + seconds, 0, 0
    for data in damaged(target.seeds, seed, target.mutate):
        if time.monotonic() > end:
            break
        tried += 1
        try:
            check(target, data)
        except Harm as harm:
            found += 1
            path = folder / f"found-{found}"
            path.write_bytes(data)
            sys.stderr.write(f"{harm}\n{path}\n")
            if not go_on:
                return 1
    sys.stderr.write(f"{tried} inputs, {found or 'nothing'} found\n")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
