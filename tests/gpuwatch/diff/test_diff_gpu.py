"""Tests of gpuwatch diff with times on a real GPU: decisions, faults in the timing process, sides in other languages.

All runs share one state folder with the compiled kernels, and use `--seconds 0.3`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli import main
from gpuwatch.diff.run_diff import find_gpu

pytestmark = pytest.mark.gpu
EXAMPLES = Path(__file__).parents[3] / "examples" / "diff"
FUNCTION = "import torch\n\ndef softmax(x, out, cols):\n    return torch.softmax(x, -1)\n"
TIMED = ("FASTER", "SLOWER", "SAME", "INCONCLUSIVE")


@pytest.fixture(scope="module")
def diff(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a function that runs `gpuwatch diff` and returns its JSON; skip without a GPU."""
    arch, why_not = find_gpu()
    if not arch:
        pytest.skip(why_not)
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("GPUWATCH_", "XDG_"))]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.chdir(EXAMPLES)

        def run(*arguments: str) -> dict[str, Any]:
            words = ["diff", *arguments, "--seconds", "0.3", "--counters", "off", "--json", str(home / "found.json")]
            assert main(words) == 0, words
            found: dict[str, Any] = json.loads((home / "found.json").read_text())
            return found

        yield run


def decision(found: dict[str, Any]) -> tuple[str, str]:
    return found["timed"][0]["decision"], found["timed"][0]["reason"]


def test_tiled_transpose_is_faster(diff: Any) -> None:
    found = diff("transpose_naive.cu", "transpose_tiled.cu")["timed"][0]
    assert found["decision"] == "FASTER"
    assert found["ratio"] > 1.1
    assert found["a"]["true_clock_mhz"] > 500


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        (("saxpy_bounds.cu", "saxpy_out_of_bounds.cu"), "B writes outside of y: 4 bytes after"),
        (("scan_inclusive.cu", "scan_exclusive.cu"), "equal when shifted by one"),
        (("histogram_atomic.cu", "histogram_race.cu"), "B is not deterministic: out differs between two runs"),
        (("saxpy_bounds.cu", "saxpy_endless.cu"), "an endless loop, or too much work"),
    ],
)
def test_wrong_kernel_is_incomparable(diff: Any, sides: tuple[str, str], words: str) -> None:
    # The size is not a multiple of a block, so a thread beyond the last element runs.
    found = decision(diff(*sides, "--shape", "n=262160"))
    assert found[0] == "INCOMPARABLE"
    assert words in found[1]


def test_kernel_equals_itself_after_faults(diff: Any) -> None:
    """The GPU still works after the faults of the previous test."""
    assert decision(diff("saxpy_bounds.cu", "saxpy_bounds.cu", "--shape", "n=16M"))[0] in ("SAME", "INCONCLUSIVE")


@pytest.mark.parametrize("other", ["softmax_triton.py:softmax", "f.py:softmax"])
def test_cuda_is_timed_against_triton_and_torch(diff: Any, tmp_path: Path, other: str) -> None:
    pytest.importorskip("triton")
    if other.startswith("f.py"):
        (tmp_path / "f.py").write_text(FUNCTION)
        other = f"{tmp_path}/{other}"
    assert decision(diff("softmax.cu", other, "--shape", "cols=1024"))[0] in TIMED


def test_sweep_has_a_point_for_each_size(diff: Any) -> None:
    found = diff("saxpy_bounds.cu", "saxpy_extern.cu", "--shape", "n=64k,1M,16M")
    assert [point["sizes"] for point in found["sweep"]["points"]] == [{"n": n << 16} for n in (1, 16, 256)]
    assert found["sweep"]["trend"] is not None


def test_pipeline_launches_are_captured(diff: Any) -> None:
    pytest.importorskip("cupy")
    found = diff("pipeline_cuda.py:two", "pipeline_cuda.py:one", "--pipeline")["timed"][0]
    assert found["decision"] == "FASTER", found["reason"]
    assert [launches.partition(":")[0] for launches in found["launches"]] == ["2 kernels", "1 kernels"]
