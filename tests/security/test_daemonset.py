"""Tests of the DaemonSet's command, and of windows of pods: another user in another PID namespace.

No cluster is used: ``unshare`` and ``setpriv`` replace the pods.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.client.connection import connect_at
from gpuwatch.config.settings import Settings
from gpuwatch.daemon import handover
from tests.gpuwatch.live import judged_run, settings, wait_for
from tests.security.people import NOBODY, open_folder
from tests.waiting import PATIENCE_S

MANIFEST = Path(gpuwatch.__file__).parents[1] / "dashboards" / "kubernetes" / "daemonset.yaml"
WINDOW = """
import os, threading, gpuwatch
with gpuwatch.window("of a pod", sync=False) as w:
    threading.Event().wait(0.5)
print(os.getuid(), os.getpid(), w.run_id or "-", w.verdict.status.value, w.verdict.why, sep="|", flush=True)
"""


@pytest.fixture
def root() -> None:
    """Skip the test without root or PID namespaces; on CI, fail the test if root cannot create a PID namespace."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user and create PID namespaces: run the tests as root")
    missing = [name for name in ("unshare", "setpriv") if shutil.which(name) is None]
    refused = missing or subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode
    if refused:
        why = f"needs a PID namespace: {', '.join(missing) or 'unshare --pid'} is not available"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(why, pytrace=False)
        pytest.skip(why)


def manifest_command() -> list[str]:
    """Return the arguments of the daemon container's command in the manifest."""
    line = re.search(r"command:\s*\[gpuwatch, (daemon, [^]]*)\]", MANIFEST.read_text())
    assert line is not None
    return [word.strip().strip('"') for word in line[1].split(",")]


@contextmanager
def daemonset(folder: Path, *before: str) -> Iterator[Settings]:
    """Run the manifest's daemon in a folder of the test, with ``before`` as launcher; yield the daemon's settings."""
    found, log = settings(folder), folder / "log"
    places = {"--state": str(found.state), "--socket": str(found.socket), "--listen": "127.0.0.1:0"}
    words = [f"{name}={places[name]}" if (name := word.partition("=")[0]) in places else word for word in manifest_command()]
    command = [*before, sys.executable, "-P", "-m", "gpuwatch", f"--source={found.source}", *words]
    with log.open("ab") as said:
        process = subprocess.Popen(command, stderr=said, cwd="/")
    try:
        wait_for(found, process, log)
        yield found
    finally:
        asking = connect_at(found.socket, found)  # unshare forwards no signal
        if asking is not None:
            with asking:
                handover.ask_to_leave(asking, wait_s=PATIENCE_S, now=True)
        process.wait(PATIENCE_S)


def pod_window(found: Settings, *before: str, user: int = NOBODY) -> tuple[int, int, str, str, str]:
    """Open a window as another user; return the process's uid and PID, and the window's run, status and reason."""
    environment = {
        "PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": str(MANIFEST.parents[2]),
        "GPUWATCH_SOURCE": found.source, "GPUWATCH_SOCKET": str(found.socket),
    }  # fmt: skip
    become = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs")
    done = subprocess.run(
        [*before, *become, sys.executable, "-c", WINDOW],
        env=environment, cwd="/", capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    uid, pid, run, status, why = done.stdout.strip().split("|")
    assert done.returncode == 0, done.stderr
    return int(uid), int(pid), run, status, why


@pytest.mark.usefixtures("root")
def test_window_of_another_pod_and_user_is_judged() -> None:
    """With hostPID the daemon finds the pod's process, and with --system the daemon serves users other than root."""
    no_capability = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
    with open_folder() as folder, daemonset(folder, *no_capability) as found:
        uid, pid, run, status, why = pod_window(found, "unshare", "--pid", "--fork")
        assert (uid, pid) == (NOBODY, 1)
        assert run != "-", why
        kept = judged_run(found.state, run)
        assert (kept.uid, kept.label, kept.status) == (NOBODY, "of a pod", status)
        assert kept.pid not in (0, 1)  # the PID in the daemon's namespace
        assert kept.uuids, why  # the daemon found the process on the GPU
        assert kept.verdicts


@pytest.mark.usefixtures("root")
def test_window_of_an_invisible_process_is_unproven() -> None:
    """Without hostPID the daemon finds no process of another pod: the verdict is unproven and names the remedy."""
    with open_folder() as folder, daemonset(folder, "unshare", "--pid", "--fork", "--mount-proc") as found:
        *_, run, status, why = pod_window(found)
        assert run != "-"
        assert status == "unproven"
        assert "is not in the PID namespace of the daemon" in why
        assert "hostPID" in why


@pytest.mark.usefixtures("root")
def test_window_refused_by_a_users_daemon_names_the_remedy() -> None:
    """A daemon without --system serves only its owner; the refusal names the owner and the remedy."""
    with open_folder() as folder:
        found, log = settings(folder), folder / "log"
        command = [sys.executable, "-P", "-m", "gpuwatch", *found.flags(), "daemon"]
        with log.open("ab") as said:
            process = subprocess.Popen(command, stderr=said, cwd="/")
        try:
            wait_for(found, process, log)
            *_, run, status, why = pod_window(found)
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
    assert (run, status) == ("-", "unproven")
    assert "serves uid 0 only" in why
    assert "gpuwatch daemon --system" in why


def test_manifest_is_marked_as_not_run() -> None:
    assert MANIFEST.read_text().startswith("# Not run on a cluster")
    assert "--system" in manifest_command()
