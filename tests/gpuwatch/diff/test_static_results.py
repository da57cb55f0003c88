"""Tests against golden results of the kernels in examples/diff/, for the compilers of requirements-dev.txt.

To rewrite the results: ``GPUWATCH_GOLDEN=1 python -m pytest tests/gpuwatch/diff/test_static_results.py``.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.cli.test_schemas import check

EXAMPLES = Path(__file__).parents[3] / "examples" / "diff"
GOLDEN = Path(__file__).with_name("golden.json")
IS_WRITTEN_ANEW = "GPUWATCH_GOLDEN" in os.environ  # read here, because a fixture removes gpuwatch's variables
PAIRS: dict[str, list[str]] = {
    "reduce": ["reduce_shared.cu", "reduce_shuffle.cu"],
    "scan": ["scan_inclusive.cu", "scan_exclusive.cu"],
    "transpose": ["transpose_naive.cu", "transpose_tiled.cu"],
    "bounds": ["saxpy_bounds.cu", "saxpy_extern.cu"],
    "template": ["scale_template.cu", "scale_template.cu:scale<double, 128>", "--fn", "scale<float,256>", "--no-check"],
    "matmul": ["matmul.cu", "matmul.cu", "--flags-b", "-maxrregcount=32"],
}


def compared(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> dict[str, Any]:
    monkeypatch.chdir(EXAMPLES)
    ended = gpuwatch("diff", *arguments, "--json", "-")
    assert (ended.code, ended.err) == (0, "")
    return ended.data


def compact(found: dict[str, Any]) -> dict[str, Any]:
    (kernel,) = found["kernels"]
    tables = {name: [" ".join(map(str, row.values())) for row in kernel[name]] for name in ("sass", "ptx")}
    resources = {row["name"]: [row["a"], row["b"]] for row in kernel["resources"]}
    sides = {name: {**kernel[name]["code"], "launches": len(kernel[name]["launches"])} for name in ("a", "b")}
    return {"sides": found["sides"], "resources": resources, **sides, **tables}


@pytest.mark.parametrize("name", PAIRS)
def test_static_results_equal_the_golden_file(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    found = compared(gpuwatch, monkeypatch, PAIRS[name])
    check(found, "urn:gpuwatch:diff:1")
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if IS_WRITTEN_ANEW:
        GOLDEN.write_text(json.dumps(golden | {name: compact(found)}, indent=1, sort_keys=True) + "\n")
        pytest.skip("written anew")
    assert compact(found) == golden[name]


def test_golden_results_show_known_differences() -> None:
    """The golden file holds known facts about the sources, so that a rewrite cannot lose them."""
    golden = json.loads(GOLDEN.read_text())
    assert golden["reduce"]["resources"]["static shared memory"] == [1024, 128]
    assert golden["transpose"]["resources"]["static shared memory"] == [0, 32 * 33 * 4]
    assert golden["scan"]["a"]["max_threads"] == [256, 1, 1]
    assert "LDG.128 1 0 1" in golden["reduce"]["sass"]
    assert [each["name"] for each in golden["bounds"]["b"]["parameters"]] == ["x", "y", "a", "n"]
    assert [each["type"] for each in golden["bounds"]["b"]["parameters"]] == ["float const*", "float*", "float", "int"]
    assert {row.partition(" ")[0] for row in golden["template"]["sass"]} >= {"LDG.32", "LDG.64", "FMUL", "DMUL"}
    assert any(row.startswith("bar.sync 1 1 0") for row in golden["reduce"]["ptx"])
    assert golden["matmul"]["sides"][1]["flags"] == ["-arch=sm_90", "-maxrregcount=32"]
    assert golden["matmul"]["a"]["spill_store_bytes"] == 0 < golden["matmul"]["b"]["spill_store_bytes"]
    assert any(row.startswith("STL.") for row in golden["matmul"]["sass"])


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on PATH")
def test_nvcc_compiles_a_file_with_host_code(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compared(gpuwatch, monkeypatch, ["saxpy_bounds.cu", "saxpy_with_host.cu"])
    assert [side["compiler"].partition(" ")[0] for side in found["sides"]] == ["NVRTC", "nvcc"]
    (kernel,) = found["kernels"]
    assert [each["name"] for each in kernel["b"]["code"]["parameters"]] == ["x", "y", "a", "n"]
    assert kernel["b"]["code"]["max_threads"] is None


def test_triton_kernel_is_compiled_without_a_gpu(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    found = compared(gpuwatch, monkeypatch, ["softmax.cu", "softmax_triton.py:softmax"])
    (kernel,) = found["kernels"]
    assert kernel["b"]["code"]["required_block"] == [128, 1, 1]
    assert [each["name"] for each in kernel["b"]["code"]["parameters"]][:3] == ["in_ptr", "out_ptr", "cols"]
