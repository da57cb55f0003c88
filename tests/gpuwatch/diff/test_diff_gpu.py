"""gpuwatch diff with times on a real GPU: decisions, faults that only the timing process meets, sides of other languages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.diff.time_diff import find_gpu
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.diff.conftest import gpuwatch, home

__all__ = ["gpuwatch", "home"]

pytestmark = pytest.mark.gpu
EXAMPLES = Path(__file__).parents[3] / "examples" / "diff"
FUNCTION = "import torch\n\ndef softmax(x, out, cols):\n    return torch.softmax(x, -1)\n"


@pytest.fixture
def diff(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    arch, why_not = find_gpu()
    if not arch:
        pytest.skip(why_not)
    monkeypatch.chdir(EXAMPLES)

    def run(*arguments: str) -> dict[str, Any]:
        ended = gpuwatch("diff", *arguments, "--seconds", "1", "--json", str(tmp_path / "found.json"))
        assert ended.code == 0, ended.err
        print(ended.out)
        found: dict[str, Any] = json.loads((tmp_path / "found.json").read_text())
        return found

    return run


def decision(found: dict[str, Any]) -> tuple[str, str]:
    return found["timed"][0]["decision"], found["timed"][0]["reason"]


def test_tiled_transpose_is_faster(diff: Any) -> None:
    found = diff("transpose_naive.cu", "transpose_tiled.cu")["timed"][0]
    assert found["decision"] == "FASTER"
    assert found["ratio"] > 1.1
    assert found["a"]["true_clock_mhz"] > 500


def test_kernel_is_no_faster_than_itself(diff: Any) -> None:
    assert decision(diff("saxpy_bounds.cu", "saxpy_bounds.cu"))[0] in ("SAME", "INCONCLUSIVE")


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        (("saxpy_bounds.cu", "saxpy_out_of_bounds.cu"), "B writes outside of y: 4 bytes behind"),
        (("scan_inclusive.cu", "scan_exclusive.cu"), "equal when shifted by one"),
        (("histogram_atomic.cu", "histogram_race.cu"), "B is not deterministic: out differs between two runs"),
        (("saxpy_bounds.cu", "saxpy_endless.cu"), "a loop without end, or too much work"),
    ],
)
def test_wrong_kernel_is_incomparable(diff: Any, sides: tuple[str, str], words: str) -> None:
    """The GPU works on afterwards."""
    found = decision(diff(*sides))
    assert found[0] == "INCOMPARABLE"
    assert words in found[1]
    assert decision(diff("saxpy_bounds.cu", "saxpy_bounds.cu"))[0] in ("SAME", "INCONCLUSIVE")


def test_cuda_against_triton_and_torch(diff: Any, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "f.py").write_text(FUNCTION)
    for other in ("softmax_triton.py:softmax", f"{tmp_path}/f.py:softmax"):
        assert decision(diff("softmax.cu", other, "--shape", "cols=1024"))[0] in ("FASTER", "SLOWER", "SAME", "INCONCLUSIVE")


def test_sweep_has_a_point_for_each_size(diff: Any) -> None:
    found = diff("saxpy_bounds.cu", "saxpy_extern.cu", "--shape", "n=64k,1M,16M")
    assert [point["sizes"] for point in found["sweep"]["points"]] == [{"n": n << 16} for n in (1, 16, 256)]
    assert found["sweep"]["trend"] is not None
