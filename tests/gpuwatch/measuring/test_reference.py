"""Tests of results checked against a reference, and of trees of tensors."""

from __future__ import annotations

from collections import UserDict, namedtuple

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import Values
from gpuwatch.errors import GpuwatchError, UsageError, WrongResultError
from gpuwatch.measuring import bench, tensor_trees
from gpuwatch.measuring.reference import match_results
from gpuwatch.process.inputs import leaves
from tests.examples import share_of
from tests.gpuwatch.measuring.scripted import ScriptedTimer, World, constant

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
    assert tensor_trees.mapped(UserDict(c=4), lambda leaf: leaf * 2) == UserDict(c=8)
    assert list(leaves(tree)) == [1, 2, 3, 4]


def test_dtype_is_that_of_the_first_floating_point_array() -> None:
    assert tensor_trees.dtype_name((np.arange(3), [np.array([1.0], np.float32)], np.ones(2))) == "float32"
    assert tensor_trees.dtype_name((np.arange(3), 1.0)) is None


class TestRight:
    def test_wrong_result_raises_before_timing(self) -> None:
        world = World(ScriptedTimer(constant(1e-3)))
        with pytest.raises(WrongResultError, match=r"at most 0\.0001 against the reference") as caught:
            bench(
                lambda: np.array([1.0, 2.0], np.float32), reference=np.array([1.0, 2.1], np.float32), timer=world.timer, seams=world.environment()
            )  # fmt: skip
        assert caught.value.error_ratio == pytest.approx(0.1 / (2.1 + 1.55), rel=1e-3)
        assert world.timer.takes == []
        assert isinstance(caught.value, GpuwatchError)

    def test_result_of_another_shape_is_reported(self) -> None:
        world = World(ScriptedTimer(constant(1e-3)))
        with pytest.raises(WrongResultError, match="found another shape, NaN or infinity"):
            bench(lambda: np.ones((2, 2)), reference=np.ones(2), timer=world.timer, seams=world.environment())

    def test_matching_result_is_reported_with_its_error(self) -> None:
        world = World(ScriptedTimer(constant(1e-3)))
        measured = bench(
            np.cos, args=(np.array([1.0, 2.0], np.float32),), reference=lambda x: np.cos(x.astype(np.float64)), timer=world.timer,
            seams=world.environment(),
        )  # fmt: skip
        assert measured.match is not None
        assert 0 < measured.match.error_ratio < 1e-6
        assert world.windows[0].declared["reference_limit_ratio"] == 1e-4
        assert "right: largest relative error" in str(measured)

    def test_in_place_function_does_not_spoil_reference(self) -> None:
        def double(x: Values) -> Values:
            x *= 2
            return x

        world = World(ScriptedTimer(constant(1e-3)))
        data = np.ones(4)
        bench(
            double,
            args=(data,),
            reference=lambda x: 2 * x,
            timer=world.timer,
            seams=world.environment(),
            min_s=0.1,
            cache="warm",
        )

    def test_cached_result_is_detected_and_inputs_restored(self) -> None:
        cached: list[Values] = []

        def memoised(x: Values) -> Values:
            cached.append(cached[0] if cached else np.sin(x))
            return cached[0]

        data = np.linspace(0.0, 1.0, 10)
        kept = data.copy()
        world = World(ScriptedTimer(constant(1e-3)))
        measured = bench(memoised, args=(data,), check_inputs=True, timer=world.timer, seams=world.environment(), min_s=0.1)
        assert measured.output_unchanged is True
        assert world.windows[0].declared["output_unchanged"] is True
        assert "may be cached" in str(measured)
        np.testing.assert_array_equal(data, kept)

    def test_computed_result_is_not_called_cached(self) -> None:
        world = World(ScriptedTimer(constant(1e-3)))
        data = np.linspace(0.0, 1.0, 10)
        measured = bench(np.sin, args=(data,), check_inputs=True, timer=world.timer, seams=world.environment(), min_s=0.1)
        assert measured.output_unchanged is False

    def test_exception_of_the_benchmarked_function_propagates(self) -> None:
        world = World(ScriptedTimer(constant(1e-3)))
        with pytest.raises(ZeroDivisionError):
            bench(lambda: 1 / 0, timer=world.timer, seams=world.environment())
