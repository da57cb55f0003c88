"""Tests that ``open_source`` opens the specified source and rejects other specifications."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.clock import VirtualClock
from gpuwatch.errors import SourceGoneError, UsageError
from gpuwatch.sources import has_driver, open_source
from tests.gpuwatch.sources.logs import TRACES


@pytest.mark.parametrize("spec", ["simulated", "simulated:steady-gemm", "simulated:fleet,idle"])
def test_open_source_simulated_name_is_the_specification(spec: str) -> None:
    assert open_source(spec, VirtualClock()).name == spec


def test_open_source_replays_a_path() -> None:
    assert open_source(f"replay:{TRACES / 'scenarios.npz'}", VirtualClock()).name.startswith("replay:")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("simulatd", "did you mean 'simulated'"),
        ("simulated:", "; name scenes after the colon, or leave it out"),
        ("simulated:steady-gem", "did you mean 'steady-gemm'"),
        ("simulated:steady-gemm,,", "no scene ''"),
        ("replay", "; give the path of a recording: replay:FILE.capsule"),
        ("replay:", "expected auto"),
        ("replay:/no/such/file", "nothing to read"),
        ("nvml:0", "takes no argument"),
        ("auto:x", "takes no argument"),
        ("", "expected auto"),
    ],
)
def test_open_source_rejects_other_specifications(spec: str, says: str) -> None:
    """Any other specification is a usage error with a text of one line."""
    with pytest.raises(UsageError) as caught:
        open_source(spec, VirtualClock())
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(has_driver(), reason="this machine has a driver, which auto opens")
def test_open_source_auto_without_a_driver_raises() -> None:
    """Without a driver ``auto`` is an error and never a simulated GPU (docs/decisions/0005)."""
    with pytest.raises(SourceGoneError):
        open_source("auto", VirtualClock())


def test_has_driver_is_true_with_a_device_node(tmp_path: Path) -> None:
    """A device node counts as a driver, even if the driver does not work."""
    (tmp_path / "nvidiactl").touch()
    assert has_driver(tmp_path)


def test_open_source_simulated_does_not_import_pynvml() -> None:
    code = (
        "import sys; from gpuwatch.clock import MonotonicClock; from gpuwatch.sources import open_source; "
        "open_source('simulated', MonotonicClock()); print('pynvml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
