"""Tests of the counters that a machine permits, and of the command for an administrator."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.diff.read_counters import CounterPermission, read_permission
from gpuwatch.errors import UsageError

ADMIN, USER = "CapEff:\t000001ffffffffff\n", "CapEff:\t0000000000000000\n"
OPEN, CLOSED = "RmProfilingAdminOnly: 0\n", "RmProfilingAdminOnly: 1\n"


def machine(folder: Path, params: str | None, status: str = USER, *, has_ncu: bool = True) -> CounterPermission:
    for name, text in (("params", params), ("status", status)):
        if text is not None:
            (folder / name).write_text(f"EnableMSI: 1\n{text}")
    if has_ncu:
        (folder / "ncu").write_text("")
        (folder / "ncu").chmod(0o755)
    return read_permission(folder / "params", folder / "status", str(folder))


@pytest.mark.parametrize(("params", "status"), [(OPEN, USER), (CLOSED, ADMIN)])
def test_ncu_needs_an_open_driver_or_administrator(tmp_path: Path, params: str, status: str) -> None:
    permission = machine(tmp_path, params, status)
    source, says = permission.choose("auto", has_gpm=True)
    assert source == "ncu"
    assert "--clock-control none, --cache-control all" in says


@pytest.mark.parametrize(
    ("params", "has_ncu", "words"),
    [
        (CLOSED, True, "lacks CAP_SYS_ADMIN; an administrator permits it with: echo 'options nvidia NVreg_RestrictProfilingTo"),
        (OPEN, False, "ncu is not on PATH; an administrator installs it with: sudo apt-get install nsight-compute"),
        (None, True, ", found none: load the NVIDIA driver"),
    ],
)
def test_gpm_replaces_ncu_with_a_reason(tmp_path: Path, params: str | None, *, has_ncu: bool, words: str) -> None:
    permission = machine(tmp_path, params, has_ncu=has_ncu)
    assert permission.choose("auto", has_gpm=True)[0] == "GPM"
    assert permission.choose("require", has_gpm=True)[0] == "GPM"
    source, says = permission.choose("auto", has_gpm=False)
    assert source == "none"
    assert words in says
    with pytest.raises(UsageError, match="--counters ncu: "):
        permission.choose("ncu", has_gpm=True)
    with pytest.raises(UsageError, match="--counters require: "):
        permission.choose("require", has_gpm=False)


def test_counters_off_give_no_source(tmp_path: Path) -> None:
    assert machine(tmp_path, OPEN).choose("off", has_gpm=True) == ("none", "not asked for (--counters off)")
