import multiprocessing
import os
import signal
import sys
import time

import pytest

from cwfed.processes.lock import is_locked, lock_folder


def own_then_fork(path, pipe):
    lock_folder(path)
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    pipe.send(child.pid)
    time.sleep(60)


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_worker_that_outlives_its_parent_does_not_hold_the_lock(tmp_path):
    context = multiprocessing.get_context("fork")
    pipe, theirs = context.Pipe()
    owner = context.Process(target=own_then_fork, args=(tmp_path, theirs))
    owner.start()
    worker = pipe.recv()
    assert is_locked(tmp_path)
    owner.kill()
    owner.join()
    try:
        os.kill(worker, 0)
        assert not is_locked(tmp_path)
    finally:
        os.kill(worker, signal.SIGKILL)
