from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from annotate.evidence import Device, Host, Process, ProcessList
from gpuwatch.daemon.window_scope import WindowGpus, WindowHost, declared_gpus, find_named

A, B = "GPU-aaaa", "GPU-bbbb"
UNUSED: Any = None  # no thread reads here


def host_of(pid: int) -> WindowHost:
    return WindowHost(pid, 0, Host(boot_id="boot"), in_thread=UNUSED, pids={pid} if pid else set())


def listed(*pids: int, uuid: str = A) -> ProcessList:
    return ProcessList(uuid=uuid, at_ns=1, took_ns=1, processes=tuple(Process(pid=pid) for pid in pids))


def covered(gpus: WindowGpus, *watched: str, absence: str | None = None) -> tuple[tuple[str, ...], str]:
    return gpus.covered({"cuda_uuids": B}, watched, absence, is_visible=True)


def test_window_gpus_cover_seen_and_declared_or_named() -> None:
    """A window covers the GPUs seen and declared; a window that names GPUs covers only the named GPUs."""
    gpus, named = WindowGpus(), WindowGpus(named=(A,))
    gpus.note(listed(os.getpid()), host_of(os.getpid()))
    named.note(listed(os.getpid(), uuid=B), host_of(os.getpid()))
    assert covered(gpus, A, B) == ((A, B), "")
    assert covered(named, A, B) == ((A,), f"not judged, because not named: {B}, where the window held a context")


def test_window_gpus_cover_the_only_gpu_where_lists_are_cut() -> None:
    """A window seen on no GPU covers none, except the only GPU if process lists cannot show the window's process."""
    gpus = WindowGpus()
    assert covered(gpus, A)[0] == ()
    gpus.note(listed(), host_of(0))
    assert covered(gpus, A) == ((A,), "")
    assert covered(gpus, absence="no driver") == ((), "no driver")


def test_window_gpus_name_the_option_of_the_interface_used() -> None:
    """The message names an option on the command line, and an argument in Python."""
    for declared, option in (({}, "gpus=[UUID]"), ({"whole_program": True}, "--gpu GPU")):
        assert WindowGpus().covered(declared, (A, B), None, is_visible=True)[1].endswith(f": {option}")


def test_window_gpus_are_named_as_on_the_command_line() -> None:
    """A name is an index, a UUID or either end of one, or a PCI address; a wrong name gives a message."""
    boards = [Device(uuid=A, name="x", pci_bus_id="00000000:5D:00.0"), Device(uuid=B, name="x", pci_bus_id="00000000:18:00.0")]
    assert find_named(None, boards) == (None, None)
    assert find_named(["aa", A, "1", "5d:00.0", "aaaa"], boards) == ((A,), None)
    found, warning = find_named(["7"], boards)
    assert found == ()
    assert warning == (
        "gpus: expected an index, a UUID or an end of it, or a PCI address, found '7'; GPUs here: 0 (GPU-bbbb), 1 (GPU-aaaa)"
    )
    assert str(find_named(["7"], ())[1]).startswith("no GPU is being watched")
    assert str(find_named(["1"], boards, missing_count=1)[1]).startswith("expected a UUID while 1 GPU does not answer")
    assert str(find_named(["GPU-cccc"], boards, missing_count=1)[1]).startswith("expected an index, a UUID"), (
        "it may be missing"
    )


def test_window_edges_read_declared_gpus_or_all() -> None:
    assert declared_gpus({"cuda_uuids": B}, (A, B)) == (B,)
    assert WindowGpus().at_edges({"cuda_uuids": B}, (A, B)) == (B,)
    assert WindowGpus().at_edges({}, (A, B)) == (A, B)


def test_window_gpus_remember_only_the_last_foreign_processes() -> None:
    gpus, host = WindowGpus(), host_of(os.getpid())
    for first in range(0, 1_000_000, 1000):
        gpus.note(listed(*range(10_000_000 + first, 10_000_040 + first)), host)
    assert len(gpus.foreign_pids[A]) <= 40
    assert host.pids == {os.getpid()}


def test_window_gpus_find_a_child_with_a_reused_pid() -> None:
    """A child with a foreign process's former PID belongs to the window."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        gpus, elsewhere, host = WindowGpus(), host_of(0), host_of(os.getpid())
        gpus.note(listed(child.pid), elsewhere)  # another process outside the tree had that PID then
        assert gpus.foreign_pids[A] == {child.pid}
        gpus.note(listed(), host)
        gpus.note(listed(child.pid), host)
        assert child.pid in host.pids
        child.communicate(b"\n")
