"""Fetching the public archives, whole or not at all."""

import http.client
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torchvision.datasets.utils import download_url

TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Remote:
    """A file on the network.

    Attributes:
        urls: Addresses to try, in order.
        md5: The file's MD5 (hex).
        target: Path below the data folder.
    """

    urls: tuple[str, ...]
    md5: str
    target: str


def fetch(name: str, remotes: Sequence[Remote], data_dir: Path, *, looked_for: str) -> None:
    """Download files into the data folder.

    Args:
        name: Name of the data set.
        remotes: The files.
        data_dir: Folder they belong in, made if missing.
        looked_for: What was looked for in that folder, for the message.

    Raises:
        OSError: A download failed; the message says why, and how to give the data instead.
    """
    for remote in remotes:
        try:
            _fetch_one(remote, data_dir)
        # RuntimeError is how torchvision reports a wrong MD5.
        except (OSError, RuntimeError, ValueError, http.client.HTTPException) as error:
            raise FileNotFoundError(
                f"{name}: no data. Looked in {data_dir} for {looked_for}; found none, and the "
                f"download of {' or '.join(remote.urls)} failed: {error}. Put the files there, or "
                "name their folder with --data_dir or the environment variable CWFED_DATA, or the "
                "files themselves with data.path."
            ) from error


def _fetch_one(remote: Remote, data_dir: Path) -> None:
    data_dir.mkdir(parents=True, exist_ok=True)
    target = data_dir / remote.target
    # A download cut short stays in its own folder, where nobody looks for data.
    folder = Path(tempfile.mkdtemp(prefix=".download-", dir=data_dir))
    try:
        with _timeout(TIMEOUT_SECONDS):
            _first_that_works(remote, folder, target.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder / target.name, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _first_that_works(remote: Remote, folder: Path, filename: str) -> None:
    failures = []
    for url in remote.urls:
        try:
            download_url(url, folder, filename=filename, md5=remote.md5)
        except (OSError, RuntimeError, ValueError, http.client.HTTPException) as error:
            failures.append(str(error) or type(error).__name__)
        else:
            return
    raise RuntimeError("; ".join(dict.fromkeys(failures)))


@contextmanager
def _timeout(seconds: float) -> Iterator[None]:
    """Bound how long a silent server is waited for: torchvision sets no limit."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
