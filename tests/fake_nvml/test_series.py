"""The compiled loop in front of the double: what it reads is what the driver has, on its deadlines."""

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
from tests.fake_nvml.running import told
from tests.fake_nvml.scene import Scene
from tests.gpuwatch.programs import program

SOURCE = Path(compiled_loop.__file__).with_name("series.c")


def test_it_was_built_when_this_was_installed() -> None:
    program("gcc")
    library, why = compiled_loop.compiled()
    assert library is not None, why


@pytest.mark.parametrize("missing", [(), ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons")])
def test_a_series_reads_what_single_questions_read(
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
    seen = told(scene, older(library, tmp_path / "older", missing) if missing else library, "serial", "agree")
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


def test_passes_keep_deadlines_and_stop_when_interrupted(scene: Scene, library: Path) -> None:
    """Passes keep their deadlines, count what they missed, and stop when interrupted."""
    seen = told(scene, library, "serial", "cadence")
    passes = seen["on_time"]
    assert passes[0][0] % 10 == 0
    assert passes[0][2] >= 3  # deadlines that had passed before it began
    assert all(late_ns >= 0 for _, late_ns, _, _ in passes)
    for (due, _, _, _), (following, _, missed, _) in pairwise(passes):
        assert following - due == pytest.approx(10 * (missed + 1))
    assert passes[-1][0] >= 599.9
    rows_ms = [due + late_ns / 1e6 for due, late_ns, _, lane in passes if lane == "fast"]
    pulses_ms = [due + late_ns / 1e6 for due, late_ns, _, lane in passes if lane == "pulse"]
    assert passes[0][3] == "fast"
    assert all(later - earlier > 44 for earlier, later in pairwise(rows_ms)), "a row each 45 ms at most"
    assert all(min(at - row for row in rows_ms if row < at) < 46 for at in pulses_ms), "and pulses no longer than that"
    assert 1 <= seen["cut"] < 200  # interrupted after 0.2 s of ten
    assert seen["none"] == 0
    assert seen["most"] == compiled_loop.PASSES_COUNT  # what it has room for, then it tells of it


def test_unusable_library_is_refused_with_the_reason(tmp_path: Path) -> None:
    """A library of another layout, or none, is not used, and the reason is given."""
    (tmp_path / "empty").mkdir()
    assert compiled_loop.compiled(tmp_path / "empty") == (
        None,
        "it was not built: no C compiler was there when gpuwatch was installed",
    )
    other = re.sub(r"(gpuwatch_series_layout = )\d+", r"\g<1>99", SOURCE.read_text())
    (tmp_path / "series.c").write_text(other)
    subprocess.run([program("gcc"), "-shared", "-fPIC", "-o", "_series.so", "series.c"], cwd=tmp_path, check=True)
    library, why = compiled_loop.compiled(tmp_path)
    assert library is None
    assert why == "_series.so is of another version of gpuwatch: install it again"
    (tmp_path / "empty" / "sub").mkdir()
    (tmp_path / "empty" / "sub" / "_series.so").write_bytes(b"no library")
    library, why = compiled_loop.compiled(tmp_path / "empty" / "sub")
    assert library is None
    assert "_series.so cannot be loaded" in why


def test_the_loop_is_compiled_without_a_warning(tmp_path: Path) -> None:
    flags = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    done = subprocess.run(
        [program("gcc"), *flags, "-o", str(tmp_path / "x.so"), str(SOURCE)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_compiled_loop_makes_every_call_of_fast_signals() -> None:
    """Every call a fast signal may need is one the loop can make."""
    asked = {question.function for name in signals(Lane.FAST) for question in SIGNALS[name] if isinstance(question, Call)}
    assert asked - compiled_loop.FORMS.keys() == set()
    assert not any(isinstance(question, GpmMetric) for name in signals(Lane.FAST) for question in SIGNALS[name])
