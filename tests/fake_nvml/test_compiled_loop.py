"""Tests of the compiled loop on the mock driver: values, deadlines, rest, and the choice of a library."""

from __future__ import annotations

import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from annotate.evidence import Lane, signals
from gpuwatch.sources.nvml import compiled_loop
from gpuwatch.sources.nvml.signals import SIGNALS, Call, GpmMetric
from tests.fake_nvml.build import older
from tests.fake_nvml.running import output_of
from tests.fake_nvml.scene import Scene
from tests.gpuwatch.programs import program

SOURCE = Path(compiled_loop.__file__).with_name("compiled_loop.c")


def test_compiled_loop_is_built_at_installation() -> None:
    program("gcc")
    library, why = compiled_loop.compiled()
    assert library is not None, why


@pytest.mark.parametrize("missing", [(), ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons")])
def test_compiled_loop_reads_the_values_of_single_calls(
    scene: Scene, library: Path, tmp_path: Path, missing: tuple[str, ...]
) -> None:
    for number, gpu in enumerate(scene.gpus):
        gpu.set(
            sm_clock_mhz=1000 + number,
            power_mw=300_000,
            temperature_c=50 + number,
            utilization_percent=44,
            event_reasons_mask=4,
        )
    seen = output_of(scene, older(library, tmp_path / "older", missing) if missing else library, "serial", "agree")
    assert len(seen) == len(scene.gpus)
    for number, gpu in enumerate(seen):
        row, alone = gpu["row"], gpu["alone"]
        assert {**row, "at_ns": 0, "took_ns": 0} == {**alone, "at_ns": 0, "took_ns": 0}
        assert 0 < row["took_ns"] < 1e9
        assert row["at_ns"] < gpu["pulse"]["at_ns"] < alone["at_ns"]
        assert (row["sm_clock_mhz"], row["temperature_c"], row["event_reasons_mask"]) == (1000 + number, 50 + number, 4)
        assert (row["power_w"], row["utilization_ratio"]) == (300.0, 0.44)
        pulse = {name for name, value in gpu["pulse"].items() if value is not None}
        assert pulse == {"uuid", "lane", "at_ns", "took_ns", "sm_clock_mhz", "event_reasons_mask"}


def test_compiled_loop_keeps_deadlines(scene: Scene, library: Path) -> None:
    """Passes keep the deadlines, count missed deadlines, and stop when interrupted or when the buffer is full."""
    seen = output_of(scene, library, "serial", "cadence")
    passes = seen["on_time"]
    assert passes[0][0] % 10 == 0
    assert passes[0][2] >= 3  # deadlines missed before the run
    assert all(late_ns >= 0 for _, late_ns, _, _ in passes)
    for (due, _, _, _), (following, _, missed, _) in pairwise(passes):
        assert following - due == pytest.approx(10 * (missed + 1))
    assert passes[-1][0] >= 599.9
    rows_ms = [due + late_ns / 1e6 for due, late_ns, _, lane in passes if lane == "fast"]
    pulses_ms = [due + late_ns / 1e6 for due, late_ns, _, lane in passes if lane == "pulse"]
    assert passes[0][3] == "fast"
    assert all(later - earlier > 44 for earlier, later in pairwise(rows_ms)), "rows are more than 44 ms apart"
    assert all(min(at - row for row in rows_ms if row < at) < 46 for at in pulses_ms), "no pulse is 46 ms or more after a row"
    assert 1 <= seen["cut"] < 200  # interrupted after 0.2 s of ten
    assert seen["none"] == 0
    assert seen["most"] == compiled_loop.PASSES_COUNT  # the loop returns when its buffer is full


def test_compiled_loop_at_rest_skips_repeated_pulses(scene: Scene, library: Path) -> None:
    """At rest, a run returns with the rows until its end, or with the first pulse that differs from the previous one."""
    still, moving, *_ = scene.gpus
    still.set(sm_clock_mhz=345, event_reasons_mask=1)
    moving.ripples("sm_clock_mhz", 60)
    quiet, changing = output_of(scene, library, "serial", "rest")[:2]
    assert [lanes for lanes, _ in quiet["seen"]] == [["pulse"], ["fast"], ["fast"], ["fast"] * 2], "no pulse before the first"
    assert all(took_ms > 250 for _, took_ms in quiet["seen"][2:])
    assert quiet["none"] == changing["none"] == 0
    assert [lanes[-1] for lanes, _ in changing["seen"]].count("pulse") >= 2


def test_compiled_loop_refuses_a_library_of_another_layout(tmp_path: Path) -> None:
    """The loop rejects a missing, incompatible or invalid library, and gives the reason."""
    (tmp_path / "empty").mkdir()
    assert compiled_loop.compiled(tmp_path / "empty") == (
        None,
        "it was not built: no C compiler was found when gpuwatch was installed; install gcc, then reinstall gpuwatch",
    )
    other = re.sub(r"(gpuwatch_compiled_loop_layout = )\d+", r"\g<1>99", SOURCE.read_text())
    (tmp_path / "compiled_loop.c").write_text(other)
    subprocess.run([program("gcc"), "-shared", "-fPIC", "-o", "_compiled_loop.so", "compiled_loop.c"], cwd=tmp_path, check=True)
    library, why = compiled_loop.compiled(tmp_path)
    assert library is None
    assert why == "_compiled_loop.so belongs to another version of gpuwatch: reinstall gpuwatch"
    (tmp_path / "empty" / "sub").mkdir()
    (tmp_path / "empty" / "sub" / "_compiled_loop.so").write_bytes(b"no library")
    library, why = compiled_loop.compiled(tmp_path / "empty" / "sub")
    assert library is None
    assert "_compiled_loop.so cannot be loaded" in why


def test_compiled_loop_compiles_without_a_warning(tmp_path: Path) -> None:
    flags = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    done = subprocess.run(
        [program("gcc"), *flags, "-o", str(tmp_path / "x.so"), str(SOURCE)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_compiled_loop_supports_every_fast_call() -> None:
    """The loop supports every call that a fast signal may need, and no fast signal needs the GPM."""
    asked = {question.function for name in signals(Lane.FAST) for question in SIGNALS[name] if isinstance(question, Call)}
    assert asked - compiled_loop.FORMS.keys() == set()
    assert not any(isinstance(question, GpmMetric) for name in signals(Lane.FAST) for question in SIGNALS[name])
