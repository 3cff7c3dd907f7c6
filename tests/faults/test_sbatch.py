"""The batch script of the manual, with a cluster and a run that are acted."""

import os
import re
import subprocess

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a shell script")

ACTORS = {
    "srun": 'exec "$@"',
    "scontrol": 'echo "scontrol $*" >> log',
    # Warned in its first job, done in its second.
    "cwfed": 'echo "cwfed $*" >> log\n[ -f runs/cifar100/config.yaml ] && exit 0\n'
    "mkdir -p runs/cifar100 && touch runs/cifar100/config.yaml\nexit ${CODE}",
}


@pytest.fixture
def submit(tmp_path, request):
    text = (request.config.rootpath / "docs/faults.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```bash\n(#!/bin/bash\n#SBATCH.*?)```", text, re.DOTALL)
    for name, body in ACTORS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    surroundings = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}

    def run(code):
        environment = surroundings | {"CODE": str(code)}
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, check=False)
        return done.returncode, (tmp_path / "log").read_text().splitlines()

    return run


def test_a_job_that_is_warned_is_requeued_and_goes_on(submit):
    first = ["cwfed fit --config cifar100_practical --run_dir runs/cifar100", "scontrol requeue 7"]
    assert submit(75) == (75, first)
    assert submit(75) == (0, [*first, "cwfed fit --resume runs/cifar100"])


def test_a_mistake_is_not_tried_again(submit):
    code, calls = submit(2)
    assert (code, len(calls)) == (2, 1)
