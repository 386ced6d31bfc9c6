"""A test broker does not outlive the tests, whatever ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

OWNER = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
from kafka_watch import Watch
watched = subprocess.Popen([sys.executable, "-c", sys.argv[2]], stdout=subprocess.PIPE, start_new_session=True)
assert watched.stdout.readline() == b"up\\n"
watch = Watch(watched.pid)
print(watched.pid, flush=True)
sys.stdin.read()
"""
PLAIN = "import time; print('up', flush=True); time.sleep(600)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_watched_process_ends_when_its_owner_is_killed(how: signal.Signals) -> None:
    command = [sys.executable, "-c", OWNER, str(TESTS), PLAIN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        handle = os.pidfd_open(int(owner.stdout.readline()))
        try:
            owner.send_signal(how)
            owner.wait(timeout=60)
            assert ended(handle)
        finally:
            os.close(handle)


def test_one_that_does_not_listen_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as deaf:
        assert deaf.stdout is not None
        assert deaf.stdout.readline() == b"up\n"
        watch = [sys.executable, str(TESTS / "kafka_watch.py"), str(deaf.pid), "0.5"]
        subprocess.run(watch, stdin=subprocess.DEVNULL, check=True, timeout=60)
        assert deaf.wait(timeout=60) == -signal.SIGKILL


def test_the_watch_ends_with_its_owner_content() -> None:
    from kafka_watch import Watch

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as watched:
        watch = Watch(watched.pid)
        assert watched.stdin is not None
        watched.stdin.close()
        assert watched.wait(timeout=60) in {0, 1}
        watch.close()


def ended(handle: int) -> bool:
    import select

    return bool(select.select([handle], [], [], 60)[0])
