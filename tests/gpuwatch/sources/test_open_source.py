"""Tests that a specification opens exactly its source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.clock import VirtualClock
from gpuwatch.errors import UsageError
from gpuwatch.sources import has_driver, open_source
from tests.gpuwatch.sources.logs import TRACES


@pytest.mark.parametrize("spec", ["simulated", "simulated:steady-gemm", "simulated:fleet,idle"])
def test_a_simulated_machine_is_called_as_it_was_asked_for(spec: str) -> None:
    assert open_source(spec, VirtualClock()).name == spec


def test_a_recording_is_opened_by_its_path() -> None:
    assert open_source(f"replay:{TRACES / 'scenarios.npz'}", VirtualClock()).name.startswith("replay:")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("simulatd", "did you mean 'simulated'"),
        ("simulated:", "expected auto"),
        ("simulated:steady-gem", "did you mean 'steady-gemm'"),
        ("simulated:steady-gemm,,", "no scene ''"),
        ("replay", "expected auto"),
        ("replay:", "expected auto"),
        ("replay:/no/such/file", "nothing to read"),
        ("nvml:0", "takes no argument"),
        ("auto:x", "takes no argument"),
        ("", "expected auto"),
    ],
)
def test_anything_else_is_refused_in_one_line(spec: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_source(spec, VirtualClock())
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_device_node_means_a_driver_even_if_it_does_not_work(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    assert has_driver(tmp_path)


def test_opening_a_simulation_loads_no_driver() -> None:
    code = (
        "import sys; from gpuwatch.clock import MonotonicClock; from gpuwatch.sources import open_source; "
        "open_source('simulated', MonotonicClock()); print('pynvml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
