"""Tests that gpuwatch, a window's process and the window's daemon import no heavy package."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from annotate.verdict import Status
from gpuwatch.client.connection import connect
from gpuwatch.client.launch import daemon_command
from tests.gpuwatch.forked import ROOT
from tests.gpuwatch.live import ended, settings
from tests.waiting import PATIENCE_S, wait_until

HEAVY = ("pandas", "pyarrow", "textual", "plotly", "sqlite_utils", "click", "rich", "prometheus_client")
JUDGES_OWN = ("/numpy/", "/scipy/")  # the judge's worker maps these libraries, and the daemon does not

_PROGRAM = """
import sys
import gpuwatch
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import load
from gpuwatch.wire import messages
found = load(dict(flag[2:].split("=", 1) for flag in sys.argv[1:]))
with gpuwatch.window("light", settings=found) as w:
    for _ in w.iterations(100):
        pass
    with w.other_work("flush"):
        pass
    w.record([1e-3, 2e-3])
with connect(found, start=False) as client:
    client.readings()
    print(client.status()["pid"], flush=True)
print(w.verdict.status.value)
"""


def stand_ins(folder: Path, trap: Path) -> Path:
    """Make a package for each name in HEAVY that records its importers and then behaves as not installed.

    The folder also has a hook of ``site`` that records the daemons that run it.
    """
    for name in HEAVY:
        (folder / name).mkdir(parents=True)
        text = f"import sys\nwith open({str(trap)!r}, 'a') as f: f.write({name!r} + ' by ' + repr(sys.orig_argv) + chr(10))\n"
        (folder / name / "__init__.py").write_text(f"{text}raise ImportError({name!r})\n")
    hook = f"import sys\nif any('on_demand' in word for word in sys.orig_argv):\n with open({str(trap)!r}, 'a') as f: f.write('site')\n"
    (folder / "sitecustomize.py").write_text(hook)
    return folder


@pytest.mark.parametrize("is_new", [True, False], ids=["new store", "existing store"])
def test_window_and_daemon_import_nothing_heavy(tmp_path: Path, *, is_new: bool) -> None:
    """No window, daemon or judge imports a package of HEAVY; the daemon also maps no numpy or scipy, and runs no hook of site."""
    trap, found = tmp_path / "trap", settings(tmp_path)
    if not is_new:
        from gpuwatch.store import Store

        Store(found.state, source=found.source, boot_id="earlier").close()
    path = os.pathsep.join([str(stand_ins(tmp_path / "stand-ins", trap)), *sys.path])
    done = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *found.flags()],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.stdout is not None
    pid = int(done.stdout.readline() or 0)
    try:
        verdict, _ = done.communicate(timeout=PATIENCE_S)
        mapped = Path(f"/proc/{pid}/maps").read_text()  # the daemon has sampled, stored and judged
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: ended(pid))
    assert verdict.strip() in list(Status)
    assert [name for name in JUDGES_OWN if name in mapped] == []
    assert (trap.read_text() if trap.exists() else "") == ""


def test_import_gpuwatch_loads_no_heavy_library() -> None:
    code = "import sys, gpuwatch; print([m for m in ('scipy','numpy','textual','plotly','torch','sqlite3','click') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_daemon_finds_packages_outside_the_named_folders(tmp_path: Path) -> None:
    """If the named folders lack a package, the daemon's script finds packages as Python usually does."""
    found = settings(tmp_path)
    *command, _, source, state, socket = daemon_command(found)
    subprocess.run([*command, str(ROOT), source, state, socket], check=True, timeout=PATIENCE_S)
    with connect(found, start=False) as client:
        pid = client.status()["pid"]
        client.leave(now=True)
    wait_until(lambda: ended(pid))


def test_daemon_loads_neither_window_nor_verdict() -> None:
    """The import of gpuwatch in a window's daemon brings no window; the daemon's modules bring no verdict."""
    code = "import sys, gpuwatch.daemon.process; print([m for m in ('gpuwatch.client.window', 'annotate.verdict') if m in sys.modules])"
    command = [sys.executable, "-X", "gpuwatch_daemon", "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "[]"
