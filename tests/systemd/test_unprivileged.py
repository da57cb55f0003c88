"""Test of the host's facts without root: unreadable facts about other users' processes are unknown."""

from __future__ import annotations

import json
import os

import pytest

from gpuwatch.host import cpu_pressure, gpu_sharing, processes, profilers
from tests.systemd.test_service import as_another

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


def test_unprivileged_daemon_reads_tree_and_cpu_pressure() -> None:
    """Without root, another user's process tree and CPU pressure are known, and its profilers and GPU sharing are unknown."""
    pid = os.getpid()

    def look() -> str:
        seen = cpu_pressure.pressure([pid])
        return json.dumps({
            "tree": sorted(processes.descendants(pid)), "name": processes.Identities().of(pid).name, "user": processes.Identities().of(pid).user,
            "threads": len(seen.threads), "allowed": seen.cpu_allowed_count,
            "profilers": profilers.attached([pid]) is not None, "sharing": gpu_sharing.sharing(pid),
        })  # fmt: skip

    seen = json.loads(as_another(look))
    assert pid in seen["tree"]
    assert seen["name"]
    assert seen["user"] == "root"
    assert seen["threads"] >= 1
    assert seen["allowed"] == len(os.sched_getaffinity(0))
    assert (seen["profilers"], seen["sharing"]) == (False, None)
    # Root, or a user with CAP_SYS_PTRACE, can read these facts.
    assert profilers.attached([pid]) is not None
    assert gpu_sharing.sharing(pid) is not None
