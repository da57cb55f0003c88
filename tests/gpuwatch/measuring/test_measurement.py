"""Tests of a measurement's rates and output."""

from __future__ import annotations

import json
from contextlib import closing
from io import StringIO
from typing import Any

import numpy as np
import pytest

from annotate.evidence import Values
from annotate.verdict import Status
from gpuwatch.measuring import bench
from gpuwatch.measuring.progress import Progress
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.measuring.scripted import ScriptedTimer, World, capped, constant, nothing, run


class TestRates:
    def test_rates_have_a_share_of_the_peak_at_the_true_clock(self) -> None:
        flops = 2 * 4096**3
        measured, world = run(constant(0.2e-3, mhz=1400.0), flops=flops, bytes=100e6, dtype="bfloat16")
        assert measured.flops_per_s == pytest.approx(flops / 0.2e-3, rel=0.01)
        assert measured.flops_peak_ratio == pytest.approx(flops / 0.2e-3 / (132 * 4096 * 1400e6), rel=0.01)
        assert measured.bytes_peak_ratio == pytest.approx(100e6 / 0.2e-3 / 4.917e12, rel=0.01)
        told = world.windows[0].declared
        assert (told["call_flops_count"], told["call_bytes"], told["dtype"]) == (flops, 100e6, "bfloat16")
        assert "of the bfloat16 peak at this clock" in str(measured)

    def test_rates_have_no_peak_share_without_a_gpu(self) -> None:
        world = World(ScriptedTimer(constant(1e-3, mhz=None), name="host", issue_s=None), gpu=None)
        measured, _ = run(constant(1e-3), world, flops=1e9)
        assert measured.flops_per_s == pytest.approx(1e12, rel=0.01)
        assert measured.flops_peak_ratio is None

    def test_sensitivity_needs_a_swinging_clock(self) -> None:
        """Sensitivity is found with a swinging clock, and refused with a reason otherwise."""
        rng = np.random.default_rng(2)

        def swinging(at_s: Values, calls: int) -> tuple[Values, Values]:
            mhz = 1400.0 * (1.0 + 0.03 * np.sin(2 * np.pi * at_s / 0.7)) + rng.normal(0, 5, len(at_s))
            return 1e-3 * (1400.0 / mhz) * (1 + 0.001 * rng.standard_normal(len(at_s))), mhz

        measured, _ = run(swinging)
        found = measured.clock_sensitivity
        assert getattr(found, "beta", None) == pytest.approx(1.0, abs=0.05), found
        assert getattr(measured.at_clock(1410.0), "time_s", None) == pytest.approx(1e-3 * 1400 / 1410, rel=0.005)
        still, _ = run(constant(1e-3))
        assert hasattr(still.clock_sensitivity, "reason")
        assert hasattr(still.at_clock(1500.0), "reason")
        unstamped, _ = run(constant(1e-3, mhz=None))
        assert "stamped" in getattr(unstamped.clock_sensitivity, "reason", "")


class TestShown:
    def test_measurement_survives_a_json_round_trip(self) -> None:
        measured, _ = run(constant(1e-3), flops=1e9, label="a")
        data = measured.to_dict()
        check(data, "urn:gpuwatch:measurement:1")
        assert json.loads(json.dumps(data, allow_nan=False)) == data
        assert data["schema"] == 1
        assert data["status"] == "valid"
        assert data["median_s"] == measured.median_s
        assert data["attempts"][0]["warmup"]["steady"] is True

    def test_measurements_match_the_schema(self) -> None:
        bare = World(ScriptedTimer(constant(1e-3, mhz=None)), statuses=(Status.REJECTED, Status.UNPROVEN), gpu=None)
        told: dict[str, Any] = {"flops": 1e9, "bytes": 1e6, "dtype": "bfloat16"}
        for measured, _ in (
            run(capped, **told, retries=1),
            run(constant(1e-3), bare, retries=2, cache="warm", min_s=0.1, **told),
            run(constant(5.0), max_s=1.0),
        ):
            check(json.loads(json.dumps(measured.to_dict(), allow_nan=False)), "urn:gpuwatch:measurement:1")

    def test_measurement_html_escapes_the_label(self) -> None:
        measured, _ = run(constant(1e-3), label="<script>alert(1)</script>")
        assert "<script>" not in measured._repr_html_()
        assert "&lt;script&gt;" in measured._repr_html_()

    def test_escapes_in_a_label_are_not_printed(self) -> None:
        measured, _ = run(constant(1e-3), label="\x1b[2Jgone")
        assert "\x1b" not in str(measured)

    def test_progress_is_one_line_that_is_removed(self) -> None:
        _, world = run(constant(1e-3), label="gemm", progress=True)
        shown = world.shown.getvalue()
        assert "gemm  warming up [" in shown
        assert "measuring [" in shown
        assert shown.endswith(" \r")
        assert "\n" not in shown

    def test_progress_needs_a_terminal(self) -> None:
        _, world = run(constant(1e-3))
        assert world.shown.getvalue() == ""

    def test_progress_line_is_removed_after_an_exception(self) -> None:
        calls = []

        def tired() -> None:
            calls.append(1)
            if len(calls) > 10:
                raise RuntimeError("tired")

        world = World(ScriptedTimer(constant(1e-3)))
        with pytest.raises(RuntimeError, match="tired"):
            bench(tired, timer=world.timer, seams=world.environment(), progress=True)
        assert world.shown.getvalue().endswith("\r")


class _Unwilling(StringIO):
    """A terminal that closes after a while."""

    def write(self, text: str) -> int:
        if self.tell() > 100:
            raise BrokenPipeError
        return super().write(text)


def test_failing_progress_does_not_lose_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(ScriptedTimer(constant(1e-3)), shown=_Unwilling())
    assert bench(nothing, timer=world.timer, seams=world.environment(), min_s=0.1, progress=True, label="\x1b[2Jx").count > 10
    assert "\x1b" not in world.shown.getvalue()
    closed = World(ScriptedTimer(constant(1e-3)))
    closed.shown.close()
    assert bench(nothing, timer=closed.timer, seams=closed.environment(), min_s=0.1).count > 10
    monkeypatch.setattr("sys.stderr", None)
    with closing(Progress("x", shown=True)) as shown:
        shown.show("measuring", 0.5)
