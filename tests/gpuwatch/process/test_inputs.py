"""Tests of the randomness of inputs, from a sample of each input."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.process.inputs import facts
from tests.examples import share_of

RANDOM = np.random.default_rng(1).standard_normal((700, 900))


def test_random_input_is_distinct_without_zeros() -> None:
    assert facts(RANDOM) == {
        "input_zero_ratio": 0.0, "input_unique_ratio": 1.0, "input_dtype": "float64", "input_bytes": RANDOM.nbytes,
    }  # fmt: skip


def test_zeros_and_constants_are_measured() -> None:
    assert facts(np.zeros((512, 512), np.float32))["input_zero_ratio"] == 1.0
    constant = facts(np.ones((512, 512), np.float16))
    assert constant["input_zero_ratio"] == 0.0
    assert float(constant["input_unique_ratio"] or 1) < 1e-4


def test_worst_large_tensor_counts_floats_first() -> None:
    """The worst of the large tensors counts, and integers count only without floats."""
    indices, bias, weight = np.zeros(10**6, np.int64), np.zeros(10), np.zeros(300_000)
    assert facts(RANDOM, indices, bias)["input_zero_ratio"] == 0.0
    assert facts(RANDOM, weight)["input_zero_ratio"] == 1.0
    assert facts(indices)["input_dtype"] == "int64"


def test_lists_and_mappings_are_searched_for_tensors() -> None:
    """Tensors in lists and mappings are found, and other values are skipped."""
    found = facts([RANDOM, {"mask": np.ones(5, bool), "name": "x"}], None, 3.0, np.array([]), np.array(["text"]))
    assert found["input_bytes"] == RANDOM.nbytes + 5
    assert facts("nothing", None) == {}


def test_strided_view_is_sampled_at_its_own_elements() -> None:
    striped = np.zeros((1000, 1000))
    striped[:, ::2] = RANDOM[:1, :1]
    assert facts(striped[:, ::2])["input_zero_ratio"] == 0.0
    assert facts(striped[:, 1::2].T)["input_zero_ratio"] == 1.0


def test_sample_covers_even_and_odd_columns() -> None:
    matrix = np.zeros((4096, 4096), np.float32)
    matrix[:, ::2] = 1.0
    assert facts(matrix)["input_zero_ratio"] == pytest.approx(0.5, abs=0.01)


@given(st.lists(st.floats(width=16), min_size=1, max_size=50), st.sampled_from(["f2", "f4", "f8", "i2", "u1", "c8", "?"]))
@settings(max_examples=share_of(60))
def test_input_ratios_lie_between_0_and_1(values: list[float], kind: str) -> None:
    with np.errstate(all="ignore"):
        found = facts(np.nan_to_num(np.array(values)).astype(kind))
    zero, unique = found["input_zero_ratio"], found["input_unique_ratio"]
    assert isinstance(zero, float)
    assert isinstance(unique, float)
    assert 0 <= zero <= 1
    assert 0 < unique <= 1


def test_inputs_are_not_sampled_during_a_graph_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert facts(RANDOM) == {}


class TestTensors:
    @pytest.fixture
    def torch(self) -> Any:
        return pytest.importorskip("torch")

    def test_every_tensor_type_and_layout_is_sampled(self, torch: Any) -> None:
        base = torch.randn(300, 400)
        for kind in (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn):
            found = facts(base.to(kind))
            assert found["input_dtype"] == str(kind).removeprefix("torch.")
            assert float(found["input_zero_ratio"] or 0) < 0.01
            assert float(found["input_unique_ratio"] or 0) > 0.01
        for view in (base.t(), base[:, ::2], base.permute(1, 0), base[:1].expand(300, 400), base.requires_grad_()):
            assert facts(view)["input_zero_ratio"] == 0.0

    def test_tensors_without_values_are_skipped(self, torch: Any) -> None:
        assert facts(torch.empty(3, device="meta"), torch.zeros(0), torch.eye(3).to_sparse()) == {}
