"""What W&B's own files of a run folder hold, by what `wandb sync` makes of them."""

import os
import subprocess
import sys

from wandb_server import KEY, WandbServer


def folders_of(folder):
    return sorted((folder / "wandb").glob("*run-*"))


def synced(folder, home):
    """Upload all folders of a run to a server of its own; return what it got."""
    with WandbServer().open() as server:
        about = {"HOME": str(home), "NETRC": str(home / "netrc"), "WANDB_API_KEY": KEY,
                 "WANDB_BASE_URL": server.url, "WANDB_ERROR_REPORTING": "false"}  # fmt: skip
        # Without this process's own W&B service.
        kept = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
        places = [str(place) for place in folders_of(folder)]
        subprocess.run(
            [sys.executable, "-m", "wandb", "sync", "--include-online", *places],
            env={**kept, **about}, capture_output=True, timeout=120, check=True,
        )  # fmt: skip
    assert server.unknown == []
    return server


def stored(folder, home):
    """Return the one run of a folder, as the server has it after an upload."""
    (run,) = synced(folder, home).runs.values()
    return run
