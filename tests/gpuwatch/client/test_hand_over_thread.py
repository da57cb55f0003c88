"""Tests of the thread that hands over the times of closed windows."""

import subprocess
import sys
import threading

import pytest

from gpuwatch.client.hand_over import MOST_COUNT, HandOver, prepare, reader
from tests.waiting import sample_for, wait_until

AT_EXIT = """
import threading
from gpuwatch.client.hand_over import HandOver
HandOver().start(lambda: (threading.Event().wait(0.2), print("done")))
"""
OPEN_AT_EXIT = """
import atexit, time
from gpuwatch.client.hand_over import HandOver, reader
open_window = HandOver()
reader().begin(open_window)
HandOver().start(lambda: print("done"))
begun_s = time.monotonic()
atexit.register(lambda: print(time.monotonic() - begun_s < 8))
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
        pytest.param(OPEN_AT_EXIT, "done\nTrue\n", id="program-ends-soon-with-an-open-window"),
        pytest.param(FORKED, "0 True\n", id="forked-child-waits-for-nothing"),
        pytest.param(NO_THREAD, "False False\nTrue []\n", id="no-thread-can-start"),
    ],
)
def test_hand_over_of_a_program(program: str, printed: str) -> None:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, printed, "")


class OpenWindow:
    """A stand-in for a window that is open during the block."""

    def __enter__(self) -> None:
        reader().begin(self)

    def __exit__(self, *_: object) -> None:
        reader().end(self)


def test_work_rests_while_a_window_is_open() -> None:
    """Running work pauses until the window ends or a thread waits for the work."""
    steps: list[int] = []
    may_end = threading.Event()

    def work() -> None:
        while not may_end.wait(0.001):
            reader().rest()
            steps.append(1)

    over = HandOver()
    over.start(work)
    wait_until(lambda: len(steps) > 3, what="the work makes steps")
    with OpenWindow():
        sample_for(0.05)
        count = len(steps)
        sample_for(0.1)
        assert len(steps) == count
    wait_until(lambda: len(steps) > count, what="the work goes on")
    with OpenWindow():
        threading.Timer(0.05, may_end.set).start()
        over.wait()


def test_interrupted_wait_ends_with_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C in a wait, later work rests again."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    over, later = HandOver(), HandOver()
    over.start(lambda: None)
    with monkeypatch.context() as patched:
        patched.setattr(reader()._changed, "notify_all", interrupt)
        with pytest.raises(KeyboardInterrupt):
            over.wait()
    over.wait()
    with OpenWindow():
        later.start(lambda: None)
        sample_for(0.1)
        assert later.is_running


def test_abandoned_window_does_not_hold_the_work() -> None:
    OpenWindow().__enter__()
    over = HandOver()
    over.start(lambda: None)
    wait_until(lambda: not over.is_running, what="the work ends")


def test_much_waiting_work_ends_before_the_next_window() -> None:
    """The memory of many unread windows must not fill the GPU."""
    overs = [HandOver() for _ in range(MOST_COUNT)]
    with OpenWindow():
        for over in overs:
            over.start(lambda: None)
        reader().make_room()
        assert not overs[0].is_running
    for over in overs:
        over.wait()
