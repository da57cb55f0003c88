"""Tests of the units: systemd's verification, the exposure, and a daemon under the units' restrictions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.store import Reader
from gpuwatch.systemd import units
from tests.gpuwatch.live import settings
from tests.gpuwatch.programs import program
from tests.systemd.manager import manager, service
from tests.systemd.test_service import ready

UNITS = Path(__file__).parents[2] / "systemd"
DROP_INS = sorted(path.stem for path in (UNITS / "drop-ins").iterdir())
MOST_EXPOSURE = 2.0


def placed(folder: Path, *drop_ins: str, kind: str = "") -> Path:
    """Write the units like an installation, with an existing program, and return the path of the service."""
    for name in ("gpuwatch.service", "gpuwatch.socket"):
        text = (UNITS / kind / name).read_text()
        (folder / name).write_text(text.replace("/usr/bin/gpuwatch", shutil.which("true") or "/bin/true"))
    for name in drop_ins:
        (folder / "gpuwatch.service.d").mkdir(exist_ok=True)
        shutil.copy(UNITS / "drop-ins" / f"{name}.conf", folder / "gpuwatch.service.d")
    return folder / "gpuwatch.service"


def exposure(unit: Path) -> float:
    printed = subprocess.run(
        [program("systemd-analyze"), "security", "--offline=yes", "--no-pager", str(unit)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = re.search(r"Overall exposure level for gpuwatch.service: ([\d.]+)", printed)
    assert found, printed
    return float(found[1])


@pytest.mark.parametrize("drop_in", ["", *DROP_INS])
def test_system_unit_exposure_is_bounded(tmp_path: Path, drop_in: str) -> None:
    """The exposure of the system's unit is at most 2.0, without drop-ins and with each one."""
    assert exposure(placed(tmp_path, *[drop_in] if drop_in else [])) <= MOST_EXPOSURE


@pytest.mark.parametrize("kind", ["", "user"])
def test_units_pass_systemd_analyze_verify(tmp_path: Path, kind: str) -> None:
    unit = placed(tmp_path, *([] if kind else DROP_INS), kind=kind)
    manager_of = ["--user"] if kind else []
    verified = subprocess.run(
        [program("systemd-analyze"), *manager_of, "verify", str(unit), str(unit.with_suffix(".socket"))],
        capture_output=True, text=True, check=False, env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )  # fmt: skip
    ours = [line for line in verified.stderr.splitlines() if "gpuwatch" in line]
    assert (verified.returncode, ours) == (0, [])


def test_units_sysusers_and_tmpfiles_are_valid(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    subprocess.run(
        [program("systemd-sysusers"), f"--root={tmp_path}", str(UNITS / "sysusers.conf")], capture_output=True, check=True
    )
    assert re.search(r"^gpuwatch:.*:/var/lib/gpuwatch:\S*nologin$", (tmp_path / "etc/passwd").read_text(), re.MULTILINE)
    made = [program("systemd-tmpfiles"), f"--root={tmp_path}", "--create", str(UNITS / "tmpfiles.conf")]
    subprocess.run(made, capture_output=True, check=os.getuid() == 0)
    if os.getuid() == 0:
        assert (tmp_path / "var/lib/gpuwatch").stat().st_mode & 0o777 == 0o750


def test_daemon_and_judge_work_within_the_restrictions(tmp_path: Path) -> None:
    """The daemon and the judge work with the unit's system calls, without capabilities or writable executable memory."""
    program("systemd-analyze")
    launcher = [
        sys.executable,
        "-m",
        "tests.systemd.confined",
        str(UNITS / "gpuwatch.service"),
        sys.executable,
        "-m",
        "gpuwatch",
    ]
    found = settings(tmp_path)
    with (
        manager(tmp_path / "notify") as notified,
        service(
            notified, [*found.flags(), "daemon", "--listen", "127.0.0.1:0"], log=tmp_path / "log", launcher=launcher
        ) as process,
    ):
        notified.until(ready)
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert re.search(r"^Seccomp:\t2$", status, re.MULTILINE)
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
        with gpuwatch.window("confined", settings=found) as w:
            pass
        assert w.verdict.findings
    log = (tmp_path / "log").read_text()
    # On a busy machine verdicts may be late for reasons other than the restrictions.
    assert not re.search(r"WARNING(?!.*verdicts may be late)|ERROR|Traceback", log), log
    with Reader(found.state) as reader:
        assert [run.label for run in reader.runs()] == ["confined"]


def test_drop_ins_have_a_mark_and_a_purpose() -> None:
    files = [path for path in UNITS.rglob("*") if path.suffix in (".service", ".socket", ".conf")]
    assert len(files) >= 6 + len(DROP_INS)
    assert all(path.read_text().startswith(units.MARK) for path in files)
    assert all(len(says) > 40 for says in units.drop_ins().values())
