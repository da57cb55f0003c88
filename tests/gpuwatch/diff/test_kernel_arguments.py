"""Tests of arguments from signatures: element types, sizes by name, scalars, fills."""

from __future__ import annotations

import numpy as np
import pytest

from gpuwatch.diff.fills import check_fill, decode, encode, make_values
from gpuwatch.diff.kernel_arguments import Slot, join_slots, pack, plan_sizes, read_slots, scalar_values
from gpuwatch.diff.kernel_code import Parameter
from gpuwatch.diff.timing_job import read_call
from gpuwatch.errors import UsageError


def slots(*texts: str) -> tuple[Slot, ...]:
    """Return the slots of parameters written as ``float const* x``."""
    split = (text.rpartition(" ") for text in texts)
    return read_slots([Parameter(name, type_, 8) for type_, _, name in split], "k.cu")


SAXPY = slots("float const* x", "float* y", "float a", "int n")


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("float const*", "f4"),
        ("float4 const*", "f4"),
        ("__half*", "f2"),
        ("__nv_bfloat16 const*", "bf16"),
        ("unsigned int*", "u4"),
        ("unsigned long long*", "u8"),
        ("bool*", "u1"),
        ("*fp32", "f4"),
        ("*bf16", "bf16"),
        ("i32", "i4"),
    ],
)
def test_type_gives_the_kind_of_elements(type_: str, kind: str) -> None:
    (slot,) = read_slots([Parameter("x", type_, 8)], "k.cu")
    assert (slot.kind, slot.is_pointer, slot.is_input) == (kind, "*" in type_, "const" in type_)


@pytest.mark.parametrize("type_", ["Params", "float**", "float4", ""])
def test_unsupported_type_is_refused(type_: str) -> None:
    with pytest.raises(UsageError, match=r"k\.cu: x: expected a number or a pointer to numbers"):
        read_slots([Parameter("x", type_, 8)], "k.cu")


def test_const_of_either_side_makes_an_input() -> None:
    joined = join_slots(SAXPY, slots("*fp32 x_ptr", "*fp32 y_ptr", "fp32 scale", "i32 n_elements"))
    assert [(each.name, each.other_name, each.is_input) for each in joined[:2]] == [("x", "x_ptr", True), ("y", "y_ptr", False)]
    with pytest.raises(UsageError, match="expected kernels that take the same arguments"):
        join_slots(SAXPY, SAXPY[:3])


def test_vector_size_is_the_element_count() -> None:
    plan = plan_sizes(SAXPY, {}, 1 << 20, is_plane=False, extra_count=16)
    assert (plan.sizes, plan.elements_count) == ({"n": (1 << 20) + 16}, (1 << 20) + 16)


def test_given_size_wins_by_either_name() -> None:
    joined = join_slots(SAXPY, slots("*fp32 x_ptr", "*fp32 y_ptr", "fp32 scale", "i32 n_elements"))
    assert plan_sizes(joined, {"n_elements": 1000}, 1 << 20, is_plane=False).sizes == {"n": 1000}


def test_plane_follows_from_two_sizes() -> None:
    found = plan_sizes(slots("float const* in", "float* out", "int rows", "int cols"), {}, 1 << 20, is_plane=True)
    assert (found.sizes, found.elements_count) == ({"rows": 1024, "cols": 1024}, 1 << 20)
    given = plan_sizes(slots("float const* in", "float* out", "int rows", "int cols"), {"cols": 512}, 1 << 20, is_plane=True)
    assert (given.sizes, given.elements_count) == ({"cols": 512, "rows": 2048}, 1 << 20)


def test_row_length_is_1024_and_the_grid_has_the_rows() -> None:
    found = plan_sizes(slots("float const* in", "float* out", "int cols"), {}, 1 << 20, is_plane=False)
    assert (found.sizes, found.elements_count) == ({"cols": 1024}, 1 << 20)


def test_stride_is_the_length_of_a_row() -> None:
    found = plan_sizes(slots("float* a", "int M", "int N", "int lda"), {"N": 512}, 1 << 18, is_plane=True)
    assert found.sizes["lda"] == found.sizes["N"] == 512


def test_whole_number_without_a_size_needs_a_value() -> None:
    with pytest.raises(
        UsageError, match="causal: expected a value for this whole number, found none; give it as --shape causal=1"
    ):
        plan_sizes(slots("float* x", "int causal"), {}, 1024, is_plane=False)


def test_scalars_are_drawn_and_packed() -> None:
    plan = plan_sizes(SAXPY, {}, 1024, is_plane=False)
    values = scalar_values(SAXPY, plan, {}, np.random.default_rng(0))
    assert 0.5 <= values["a"] <= 1.5
    assert values["n"] == 1024
    assert pack(SAXPY[3], 1024) == (1024).to_bytes(4, "little")
    with pytest.raises(UsageError, match="n: expected a value that its type holds"):
        pack(SAXPY[3], 2**40)


def test_call_names_scalars_and_shared_buffers() -> None:
    assert read_call("saxpy(y, y, 2.5, n)", SAXPY) == ({"a": 2.5}, {"x": "y"})
    for text in ("saxpy(x, y)", "saxpy", "saxpy(x, y, much, n)"):
        with pytest.raises(UsageError, match="--call: "):
            read_call(text, SAXPY)


@pytest.mark.parametrize("kind", ["f4", "f2", "f8", "bf16", "i4", "u1", "i8"])
@pytest.mark.parametrize("fill", ["randn", "zeros", "iota", "nan", "large"])
def test_fill_repeats_with_its_seed(kind: str, fill: str) -> None:
    slot = Slot("x", kind, is_pointer=True)
    first, again = (make_values(slot, 1000, fill, np.random.default_rng(3)) for _ in range(2))
    assert first.nbytes == 1000 * slot.itemsize
    assert np.array_equal(first, again)
    numbers = decode(slot, first)
    assert bool(np.isnan(numbers.astype("f8")).any()) == (fill == "nan" and slot.is_float)
    if fill == "zeros":
        assert not numbers.any()


def test_whole_numbers_are_valid_indices() -> None:
    values = decode(
        Slot("x", "i4", is_pointer=True), make_values(Slot("x", "i4", is_pointer=True), 1000, "randn", np.random.default_rng(0))
    )
    assert 0 <= values.min() <= values.max() < 128


def test_bfloat16_is_rounded_to_the_nearest() -> None:
    slot = Slot("x", "bf16", is_pointer=True)
    assert decode(slot, encode(slot, np.array([1.0, 1.00390625, 3.0]))).tolist() == [1.0, 1.0, 3.0]


def test_unknown_fill_is_refused(tmp_path: object) -> None:
    for text in ("ones", f"{tmp_path}/no.npy"):
        with pytest.raises(UsageError, match="--fill: expected"):
            check_fill(text)
