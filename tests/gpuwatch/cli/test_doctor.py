from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from annotate.evidence import Lane
from gpuwatch import config
from gpuwatch.cli.checks import Grade, driver, machine, places
from gpuwatch.clock import MonotonicClock
from gpuwatch.config import Settings
from gpuwatch.lanes import measure
from gpuwatch.sources import open_source
from tests.gpuwatch.cli.conftest import Gpuwatch


def test_it_measures_each_gpu_and_says_what_is_simulated(gpuwatch: Gpuwatch) -> None:
    ended = gpuwatch("doctor", "--source", "simulated:steady-copy,mig", "--json")
    assert (ended.code, ended.data["ok"]) == (0, True)
    checks = {check["name"]: check for check in ended.data["checks"]}
    assert {"gpuwatch", "container", "processes", "driver", "configuration", "store", "sqlite", "socket", "daemon"} <= set(
        checks
    )
    assert checks["driver"]["grade"] == "WARN"
    assert "SIMULATED" in checks["driver"]["found"]
    gpu = next(check for check in ended.data["checks"] if "signals answered" in check["found"])
    assert gpu["facts"]["cost_us"]["sm_clock_mhz"] > 0
    assert "power_cap_ns" in gpu["facts"]["supported"]
    assert any("MIG is on" in check["found"] for check in ended.data["checks"])
    assert sum("watched through its board" in check["found"] for check in ended.data["checks"]) == 2
    assert all(check["fix"] for check in ended.data["checks"] if check["grade"] != "PASS")


def test_without_a_driver_it_fails_and_says_how_to_look_around(home: Path) -> None:
    (only,) = driver.checks(config.load(), None, "no driver here")
    assert (only.grade, only.found) == (Grade.FAIL, "no driver here")
    assert "gpuwatch demo" in only.fix


def test_a_recording_that_is_not_there_fails_with_its_reason(gpuwatch: Gpuwatch, home: Path) -> None:
    ended = gpuwatch("doctor", "--source", f"replay:{home}/no-such.csv", "--json")
    assert ended.code in (1, 2)
    assert "no-such.csv" in ended.err + ended.out


def test_a_running_daemon_is_told_with_its_rates(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    checks = {check["name"]: check for check in gpuwatch(*daemon.flags(), "doctor", "--json").data["checks"]}
    assert checks["daemon"]["grade"] == "PASS"
    assert checks["daemon"]["facts"]["socket"] == str(daemon.socket)
    assert checks["windows"]["facts"]["size_bytes"] > 0


def test_a_gpu_that_hides_what_every_claim_needs_fails(home: Path) -> None:
    source = open_source("simulated:steady-copy", MonotonicClock())
    (device,) = source.devices()
    plan = measure(source, device, MonotonicClock(), seconds=0.05)
    source.close()
    hidden = {"power_cap_ns", "power_violation_ns"}
    names = {lane: tuple(name for name in of_lane if name not in hidden) for lane, of_lane in plan.names.items()}
    blind, _ = driver._gpu(device, replace(plan, names=names, unanswered=frozenset(hidden)))
    assert blind.grade is Grade.FAIL
    assert "power_cap_ns or power_violation_ns" in blind.found
    names[Lane.EDGE] = (*names[Lane.EDGE], "power_violation_ns")
    seeing, _ = driver._gpu(device, replace(plan, names=names, unanswered=frozenset({"power_cap_ns"})))
    assert seeing.grade is Grade.WARN


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"persistence_mode": False}, "nvidia-smi -pm 1"),
        ({"power_limit_w": 500.0}, "nvidia-smi -pl 700"),
        ({"mig_mode": True}, "-mig 0"),
    ],
)
def test_a_setting_that_limits_proof_is_told_with_its_fix(changed: dict[str, object], words: str) -> None:
    (device,) = open_source("simulated:steady-copy", MonotonicClock()).devices()
    checks = list(driver._setup(replace(device, **changed), None))  # type: ignore[arg-type]  # any fields
    assert [check.grade for check in checks] == [Grade.WARN, Grade.PASS]
    assert words in checks[0].fix
    locked = list(driver._setup(device, 1200))
    assert "1200 of 1980 MHz" in locked[0].found


def test_a_socket_folder_of_somebody_else_fails(home: Path) -> None:
    folder = home / "open"
    folder.mkdir()
    folder.chmod(0o777)
    check = places._socket(config.load({"socket": str(folder / "s")}))
    assert check.grade is Grade.FAIL
    assert "chmod 700" in check.found


def test_a_kernel_without_pressure_figures_is_told(tmp_path: Path) -> None:
    assert machine._pressure(tmp_path / "none").grade is Grade.WARN
    (tmp_path / "cpu").write_text("some avg10=0.00")
    assert machine._pressure(tmp_path / "cpu").grade is Grade.PASS
