"""Fuzz one reader for some time, guided by coverage: needs `pip install atheris`."""

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["cwfed", "yaml", "json"]):
    from .targets import TARGETS, make_target
    from .watch import MOST_SECONDS, check

CORPUS = Path(__file__).parent / "corpus"


def main() -> None:
    """Run until the time is over or something is found, which is saved and shown."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60, help="how long (default: 60)")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix=f"cwfed-fuzz-{given.target}-"))
    (folder / "seeds").mkdir()
    (folder / "files").mkdir()
    target = make_target(given.target, folder / "files")
    for number, seed in enumerate(target.seeds):
        (folder / "seeds" / str(number)).write_bytes(seed)
    options = [
        f"-max_total_time={given.seconds}",
        f"-artifact_prefix={folder}/found-",
        f"-timeout={int(4 * MOST_SECONDS)}",
        "-max_len=100000",
        "-rss_limit_mb=4096",
    ]
    folders = [str(folder / "seeds"), str(CORPUS / given.target)]
    atheris.Setup([sys.argv[0], *options, *folders], lambda data: check(target, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
