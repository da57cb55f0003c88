"""Tests of a result's check against its reference, and of trees of tensors."""

from __future__ import annotations

from collections import namedtuple

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import Values
from gpuwatch.errors import UsageError
from gpuwatch.measuring import tensor_trees
from gpuwatch.measuring.reference import match_results
from gpuwatch.process.inputs import leaves
from tests.examples import share_of

finite = arrays.arrays(np.float64, st.integers(1, 20), elements=st.floats(-1e6, 1e6))


@given(finite, st.floats(1e-6, 0.1))
@settings(max_examples=share_of(60))
def test_match_agrees_with_allclose(reference: Values, rtol: float) -> None:
    result = reference * (1 + rtol / 3) + rtol * np.abs(reference).mean() / 3
    close = np.allclose(result, reference, rtol=rtol, atol=rtol * np.abs(reference).mean())
    assert match_results(result, reference, rtol).holds == close


@given(finite)
@settings(max_examples=share_of(30))
def test_equal_results_have_no_error(values: Values) -> None:
    assert match_results(values, values.copy(), 0.0).error_ratio == 0.0


def test_match_limit_follows_the_data_type() -> None:
    assert match_results(np.array([1.0], np.float32), [1.0]).limit_ratio == 1e-4
    assert match_results(np.array([1.0], np.float16), np.array([1.0], np.float16)).limit_ratio == 1e-2
    assert match_results(3, 3).limit_ratio == 1e-9
    assert match_results(np.array([3], np.int32), np.array([3], np.int32)).limit_ratio == 0.0
    assert match_results(np.array([1.0], np.float32), [1.0], 0.5).limit_ratio == 0.5


def test_other_shape_or_count_of_results_is_wrong() -> None:
    assert not match_results(np.ones((2, 3)), np.ones((3, 2))).holds
    assert not match_results((1.0, 2.0), (1.0,)).holds
    assert not match_results((1.0, None), (1.0, 2.0), 0.1).holds


def test_nan_matches_only_nan_in_the_reference() -> None:
    assert match_results([np.nan, 1.0], [np.nan, 1.0]).holds
    assert match_results(np.array([np.nan, 1.0]), np.array([1.0, 1.0]), 1.0).error_ratio == float("inf")
    assert not match_results(np.array([np.inf]), np.array([1.0]), 1.0).holds
    assert match_results(np.array([np.inf, 1.0]), np.array([np.inf, 1.0])).holds


def test_wrong_imaginary_part_is_found() -> None:
    right = np.array([1 + 1j, 2 - 2j])
    assert match_results(right, right).holds
    assert not match_results(right, right.conj()).holds
    assert not match_results(right, right.real).holds
    assert not match_results(1 + 1j, 1.0).holds
    assert match_results(right.astype(np.complex64) * (1 + 1e-6), right).holds
    assert match_results(np.array([np.nan + 1j]), np.array([np.nan + 1j])).holds
    assert match_results(np.array([np.nan + 1j]), right[:1]).error_ratio == float("inf")


def test_zero_reference_needs_a_zero_result() -> None:
    assert match_results(np.zeros(3), np.zeros(3)).holds
    assert not match_results(np.full(3, 1e-30), np.zeros(3), 0.1).holds


def test_worst_of_several_results_decides() -> None:
    found = match_results({"a": 1.0, "b": [2.0, 2.2]}, {"a": 1.0, "b": [2.0, 2.0]}, 0.01)
    assert found.error_ratio == pytest.approx(0.05)
    assert not found.holds


def test_missing_or_text_result_is_refused() -> None:
    with pytest.raises(UsageError, match="returns nothing"):
        match_results(None, 1.0)
    with pytest.raises(UsageError, match="expected tensors, arrays or numbers"):
        match_results("fast", "fast")


def test_match_without_tolerance_is_exact() -> None:
    assert match_results(np.ones(3), np.ones(3), 0.0).error_ratio == 0.0
    assert match_results(np.ones(3), np.ones(3) + 1e-15, 0.0).error_ratio > 0.0


def test_mapped_trees_keep_their_structure() -> None:
    Pair = namedtuple("Pair", "a b")
    tree = (Pair(1, [2, 3]), {"c": 4})
    assert tensor_trees.mapped(tree, lambda leaf: leaf * 2) == (Pair(2, [4, 6]), {"c": 8})
    assert list(leaves(tree)) == [1, 2, 3, 4]


def test_dtype_is_that_of_the_first_floating_point_array() -> None:
    assert tensor_trees.dtype_name((np.arange(3), [np.array([1.0], np.float32)], np.ones(2))) == "float32"
    assert tensor_trees.dtype_name((np.arange(3), 1.0)) is None
