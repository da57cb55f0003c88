"""Tests of the thread that hands over the times of closed windows."""

import subprocess
import sys
import threading

import pytest

from gpuwatch.client.hand_over import HandOver, prepare

AT_EXIT = """
import threading
from gpuwatch.client.hand_over import HandOver
HandOver().start(lambda: (threading.Event().wait(0.2), print("done")))
"""
FORKED = """
import os, threading
from gpuwatch.client.hand_over import HandOver
may_end, over = threading.Event(), HandOver()
over.start(may_end.wait)
if child := os.fork():
    status = os.waitpid(child, 0)[1]
    print(os.waitstatus_to_exitcode(status), over.is_running)
    may_end.set()
else:
    over.wait()
    own, seen = HandOver(), []
    own.start(lambda: seen.append(1))
    own.wait()
    os._exit(0 if seen and not over.is_running else 1)
"""
NO_THREAD = """
import threading
from gpuwatch.client.hand_over import HandOver
threading.stack_size(1 << 46)
over, seen = HandOver(), []
print(over.start(lambda: seen.append(1)), over.is_running)
threading.stack_size(0)
print(HandOver().start(lambda: None), seen)
"""


def test_hand_over_after_prepare_starts_no_thread() -> None:
    """``background-thread`` counts the threads that start in a window, so every hand-over uses the thread of ``prepare``."""
    prepare()
    before = set(threading.enumerate())
    overs, ran = [HandOver() for _ in range(3)], []
    for over in overs:
        assert over.start(lambda: ran.append(threading.current_thread()))
    for over in overs:
        over.wait()
        assert not over.is_running
    assert len(ran) == 3
    assert set(ran) <= before
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        pytest.param(AT_EXIT, "done\n", id="program-ends-after-the-work"),
        pytest.param(FORKED, "0 True\n", id="forked-child-waits-for-nothing"),
        pytest.param(NO_THREAD, "False False\nTrue []\n", id="no-thread-can-start"),
    ],
)
def test_hand_over_of_a_program(program: str, printed: str) -> None:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, printed, "")
