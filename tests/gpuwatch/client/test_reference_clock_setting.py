"""The reference clock from every interface, and windows with a daemon that does not know the setting."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import gpuwatch as product
from gpuwatch.config.settings import load
from gpuwatch.errors import UsageError
from tests.compatibility.conversation import OldDaemon
from tests.compatibility.write import SOURCE, TIMES_S
from tests.gpuwatch import live
from tests.gpuwatch.cli.conftest import Gpuwatch, gpuwatch, home

__all__ = ["gpuwatch", "home"]

CAPSULE = str(Path(__file__).parents[2] / "traces" / "h200-short-windows.capsule")


def clocks_of(verdicts: list[dict[str, Any]]) -> list[float]:
    numbers = [number for verdict in verdicts for number in verdict["budget"]["numbers"]]
    return [number["clock_mhz"] for number in numbers if number["number"] == "median_at_clock"]


@pytest.mark.parametrize(
    ("setting", "option", "mhz"),
    [(None, None, 1500.0), ("1410 MHz", None, 1410.0), ("NVIDIA H200=1410", None, 1410.0), ("1410", "1600", 1600.0)],
)
def test_judge_states_the_median_at_the_set_clock(
    gpuwatch: Gpuwatch,
    monkeypatch: pytest.MonkeyPatch,
    setting: str | None,
    option: str | None,
    mhz: float,
) -> None:
    """The option precedes the setting, and the setting precedes the recorded clock of the model."""
    if setting is not None:
        monkeypatch.setenv("GPUWATCH_REFERENCE_CLOCK", setting)
    options = () if option is None else ("--reference-clock", option)
    assert clocks_of(gpuwatch("judge", CAPSULE, "--json", *options).data["verdicts"]) == [mhz, mhz]
    assert f"median at {mhz:.0f} MHz" in gpuwatch("judge", CAPSULE, *options).out


@pytest.mark.parametrize("clock", ["99", "5001 MHz", "H200=9", "1.4 GHz"])
def test_wrong_reference_clock_is_refused_in_one_line(
    gpuwatch: Gpuwatch,
    monkeypatch: pytest.MonkeyPatch,
    clock: str,
) -> None:
    by_option = gpuwatch("judge", CAPSULE, "--reference-clock", clock)
    monkeypatch.setenv("GPUWATCH_REFERENCE_CLOCK", clock)
    for ended, where in ((by_option, "--reference-clock"), (gpuwatch("config", "show"), "GPUWATCH_REFERENCE_CLOCK")):
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert f"{where}: expected a " in ended.err


@pytest.mark.parametrize("clock", [99, "1410", {}, {"NVIDIA H200": 9}])
def test_window_refuses_a_wrong_reference_clock(clock: Any) -> None:
    with pytest.raises(UsageError, match=r"\Areference_clock: expected a ") as refusal:
        product.window(reference_clock=clock)
    assert "\n" not in str(refusal.value)
    with pytest.raises(UsageError, match=r"\Areference_clock: expected a "):
        product.bench(sum, args=([1],), reference_clock=clock)


def test_configuration_file_sets_the_clock_of_models(tmp_path: Path) -> None:
    """Settings complete a policy without a clock, and leave a policy's own clock."""
    file = tmp_path / "config.toml"
    file.write_text('reference_clock = "NVIDIA B200=1500, NVIDIA A100=1200 MHz"\n')
    settings = load({"config": str(file)}, environment={"HOME": str(tmp_path)})
    assert settings.complete(product.Policy()).reference_clock_mhz == {"NVIDIA B200": 1500.0, "NVIDIA A100": 1200.0}
    assert settings.complete(product.Policy(reference_clock_mhz=1410.0)).reference_clock_mhz == 1410.0
    assert settings in {settings}  # windows share connections by their settings


def test_stored_verdict_keeps_its_reference_clock(tmp_path: Path) -> None:
    """The daemon stores the clock of the window or of its settings, and answers with it."""
    with live.running(tmp_path) as running:
        flags = {"source": running.settings.source, "state": str(tmp_path / "state"), "socket": str(tmp_path / "s")}
        set_to = load(flags, environment={"HOME": "/", "GPUWATCH_REFERENCE_CLOCK": "1450 MHz"})
        by_model = {"NVIDIA H200": 1410.0}
        for given, kept in ((by_model, by_model), (1410, 1410.0), (None, 1450.0)):
            with product.window("clock", reference_clock=given, settings=set_to) as w:
                w.record(TIMES_S)
            assert w.verdict.policy["reference_clock_mhz"] == kept
            assert w.run_id is not None
            assert live.judged_run(running.settings.state, w.run_id).policy["reference_clock_mhz"] == kept


def test_old_daemon_gets_a_policy_without_the_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An earlier daemon would refuse the policy's key, so the client leaves it out and prints that."""
    flags = {"source": SOURCE, "state": str(tmp_path / "state"), "socket": str(tmp_path / "s")}
    settings = load(flags, environment={"HOME": "/"})
    daemon = OldDaemon(settings.socket, settings.state)
    try:
        with product.window("valid", reference_clock=1410, tolerance=0.02, settings=settings) as w:
            w.record(TIMES_S)
        assert w.verdict.status == "valid"
        (opened,) = [request for request in daemon.asked if request["type"] == "open"]
        assert opened["policy"] == {"claim": "sustained", "accept": [], "limits": {}, "tolerance_ratio": 0.02}
        assert f"pid {os.getpid()}" in capsys.readouterr().err
    finally:
        daemon.close()
