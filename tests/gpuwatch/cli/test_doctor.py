"""Tests of gpuwatch doctor: its checks, grades and remedies."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from annotate.budget import Proof, ProofState
from annotate.evidence import SIGNALS, Device, Lane
from annotate.judge import judge
from annotate.user_policy import Policy
from gpuwatch.cli.checks import Check, Grade, driver, machine, places
from gpuwatch.clock import MonotonicClock
from gpuwatch.config import settings
from gpuwatch.config.settings import Settings
from gpuwatch.sampling.plan import SamplingPlan
from gpuwatch.sources import open_source
from tests.annotate.builders import DEVICE, evidence
from tests.gpuwatch.cli.conftest import Gpuwatch


def test_doctor_measures_each_gpu_and_marks_simulated_ones(gpuwatch: Gpuwatch) -> None:
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


def test_doctor_without_a_driver_fails_and_names_the_demo(home: Path) -> None:
    (only,) = driver.checks(settings.load(), None, "no driver here")
    assert (only.grade, only.found) == (Grade.FAIL, "no driver here")
    assert "gpuwatch demo" in only.fix


def test_doctor_names_a_missing_recording(gpuwatch: Gpuwatch, home: Path) -> None:
    ended = gpuwatch("doctor", "--source", f"replay:{home}/no-such.csv", "--json")
    assert ended.code in (1, 2)
    assert "no-such.csv" in ended.err + ended.out


def test_doctor_passes_a_running_daemon_with_its_socket(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    checks = {check["name"]: check for check in gpuwatch(*daemon.flags(), "doctor", "--json").data["checks"]}
    assert checks["daemon"]["grade"] == "PASS"
    assert checks["daemon"]["facts"]["socket"] == str(daemon.socket)
    assert checks["windows"]["facts"]["size_bytes"] > 0


COUNTERS = ("power_cap_ns", "power_violation_ns", "sw_thermal_ns", "thermal_violation_ns", "hw_thermal_ns")


def looked_at(device: Device, hidden: Collection[str]) -> Check:
    """Return doctor's check of a GPU that does not answer these signals."""
    names = {Lane.FAST: tuple(name for name in SIGNALS if name not in hidden)}
    period_ns = {Lane.FAST: 50_000_000}
    plan = SamplingPlan(
        uuid=device.uuid, names=names, idle_period_ns=period_ns, active_period_ns=period_ns, unanswered=frozenset(hidden)
    )
    return next(driver._gpu(device, plan))


@pytest.mark.parametrize("hidden", [*combinations(COUNTERS, 1), COUNTERS[:2], COUNTERS[2:4], COUNTERS, ("sm_clock_mhz",)])
@pytest.mark.parametrize("mask", [None, 0x1FF, 0x1FF & ~0x4, 0x1FF & ~0x8, 0x1FF & ~0x20, 0x1FF & ~0x40, "hidden"])
def test_doctor_and_judge_agree_on_required_signals(hidden: tuple[str, ...], mask: int | str | None) -> None:
    if mask == "hidden":
        hidden = (*hidden, "event_reasons_mask")
    device = replace(DEVICE, supported_reasons_mask=mask if isinstance(mask, int) else None)
    quiet = evidence(device=device, signals=dict.fromkeys(hidden))
    said = judge(quiet, Policy())
    assert said.budget is not None
    (conditions,) = (each for each in said.budget.proofs if each.proof is Proof.CONDITIONS)
    assert (looked_at(device, hidden).grade is Grade.FAIL) == (conditions.state is ProofState.UNPROVEN), said.why


def test_doctor_fails_a_gpu_without_required_signals() -> None:
    """Doctor fails a GPU without the reasons, or without any signal of a required reason; a sampled reason suffices."""
    blind = looked_at(DEVICE, ("event_reasons_mask",))
    assert blind.grade is Grade.FAIL
    assert "without event_reasons_mask every window ends unproven" in blind.found
    silent = looked_at(replace(DEVICE, supported_reasons_mask=0x1FF & ~0x4), ("power_cap_ns", "power_violation_ns"))
    assert "without power_cap_ns or power_violation_ns or the reason sw_power_cap every window" in silent.found
    assert looked_at(DEVICE, ("power_cap_ns", "power_violation_ns")).grade is Grade.WARN, "the sampled reasons suffice"


@pytest.mark.parametrize(("version", "grade"), [("11.5.3", Grade.WARN), ("12.0.0", Grade.PASS)])
def test_doctor_warns_of_an_old_pynvml(version: str, grade: Grade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since version 12 the package pynvml has no module, so it replaces none."""
    (tmp_path / "pynvml.dist-info").mkdir()
    (tmp_path / "pynvml.dist-info" / "METADATA").write_text(f"Name: pynvml\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert driver._binding().grade is grade


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"persistence_mode": False}, "nvidia-smi -pm 1"),
        ({"power_limit_w": 500.0}, "nvidia-smi -pl 700"),
        ({"mig_mode": True}, "-mig 0"),
    ],
)
def test_doctor_warns_of_a_limiting_setting_with_the_fix(changed: dict[str, object], words: str) -> None:
    (device,) = open_source("simulated:steady-copy", MonotonicClock()).devices()
    checks = list(driver._setup(replace(device, **changed), None))  # type: ignore[arg-type]  # any fields
    assert [check.grade for check in checks] == [Grade.WARN, Grade.PASS]
    assert words in checks[0].fix
    locked = list(driver._setup(device, 1200))
    assert "1200 of 1980 MHz" in locked[0].found


def test_doctor_fails_a_socket_folder_open_to_others(home: Path) -> None:
    folder = home / "open"
    folder.mkdir()
    folder.chmod(0o777)
    check = places._socket(settings.load({"socket": str(folder / "s")}))
    assert check.grade is Grade.FAIL
    assert check.found == f"{folder}: expected a folder only you can write to, found mode 0777"
    assert check.fix == f"run: chmod 700 {folder}"


def test_doctor_warns_of_a_kernel_without_pressure_figures(tmp_path: Path) -> None:
    assert machine._pressure(tmp_path / "none").grade is Grade.WARN
    (tmp_path / "cpu").write_text("some avg10=0.00")
    assert machine._pressure(tmp_path / "cpu").grade is Grade.PASS


@pytest.mark.parametrize("name", ["doctor", "scenes", "explain"])
def test_lists_fit_a_terminal_of_80_columns(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """On a terminal long lines are wrapped and no word is cut, also no path; a pipe gets whole lines."""
    monkeypatch.setenv("GPUWATCH_SOURCE", "simulated:steady-copy")
    whole = gpuwatch(name).out
    monkeypatch.setenv("COLUMNS", "80")
    shown = gpuwatch(name).out
    longest = [max(len(line) for line in text.splitlines() if "/" not in line) for text in (whole, shown)]
    assert longest[0] > 80 >= longest[1]
    assert len(shown.split()) == len(whole.split())


def test_doctor_fails_a_store_in_a_folder_without_room_for_files(gpuwatch: Gpuwatch) -> None:
    ended = gpuwatch("doctor", "--source", "simulated:steady-copy", "--state", "/proc/nohome/state", "--json")
    (store,) = (check for check in ended.data["checks"] if check["name"] == "store")
    assert (store["grade"], store["found"]) == ("FAIL", "/proc cannot be written")
    assert store["fix"] == "choose another folder with --state, or GPUWATCH_STATE"
