"""Test with a real systemd, as a user's manager in a private mount namespace: install, activation, restart, uninstall."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

SYSTEMD = Path("/lib/systemd/systemd")
NEEDED = ("unshare", "dbus-daemon", "systemctl")

# sd_booted(3) checks for /run/systemd/system; in a private namespace the folder affects no other process.
MANAGER = """
mount -t tmpfs none /run/systemd && mkdir /run/systemd/system || exit 77
dbus-daemon --session --address=unix:path=$XDG_RUNTIME_DIR/bus --nofork --nopidfile 2>/dev/null & bus=$!
{systemd} --user --log-target=null & manager=$!
for _ in $(seq 50); do systemctl --user is-system-running >/dev/null 2>&1 && break; sleep 0.1; done
systemctl --user is-system-running >/dev/null || {{ kill $manager $bus; exit 77; }}
"$@"; ended=$?
systemctl --user exit >/dev/null 2>&1; kill $bus; wait $manager
exit $ended
"""

LIFE = """
set -e
gpuwatch() {{ {python} -m gpuwatch "$@"; }}
state() {{ systemctl --user is-active gpuwatch.service gpuwatch.socket | tr '\\n' ' '; }}
window() {{ {python} -c 'import gpuwatch as g
from gpuwatch.config import settings as config
with g.window(settings=config.load(dict(source="simulated:steady-copy"))) as w: pass
print(bool(w.verdict.findings))'; }}
gpuwatch daemon install --user --yes --source simulated:steady-copy >/dev/null
echo "installed: $(state)$(systemctl --user show -P StatusText gpuwatch.service)"
echo "reloaded: $(systemctl --user reload gpuwatch.service && state)"
systemctl --user stop gpuwatch.service 2>/dev/null
echo "stopped: $(state || true)"
echo "activated: $(window) $(state)"
kill -9 $(systemctl --user show -P MainPID gpuwatch.service)
echo "after kill -9: $(window) $(state)$(systemctl --user show -P NRestarts gpuwatch.service)"
gpuwatch daemon uninstall --user --yes >/dev/null 2>&1
echo "uninstalled: $(state || true)"
"""


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root may have a mount namespace")
@pytest.mark.skipif(not SYSTEMD.exists() or not all(map(shutil.which, NEEDED)), reason=f"needs systemd, {', '.join(NEEDED)}")
def test_systemd_installs_restarts_and_removes_the_service(tmp_path: Path) -> None:
    runtime = tmp_path / "r"
    runtime.mkdir(mode=0o700)
    manager = tmp_path / "manager.sh"
    manager.write_text(MANAGER.format(systemd=SYSTEMD))
    life = tmp_path / "life.sh"
    life.write_text(LIFE.format(python=sys.executable))
    environment = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(runtime), "PATH": os.environ["PATH"]}
    ended = subprocess.run(
        ["unshare", "--mount", "bash", str(manager), "bash", str(life)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment,
    )  # fmt: skip
    if ended.returncode == 77:
        pytest.skip("no user's systemd can run here")
    assert ended.stdout.splitlines() == [
        "installed: active active 1 × SIMULATED NVIDIA H200",
        "reloaded: active active ",
        "stopped: inactive active ",
        "activated: True active active ",
        "after kill -9: True active active 1",
        "uninstalled: inactive inactive ",
    ], ended.stderr
