"""Tests of untrusted cubins: any damaged cubin is refused or read, and never crashes the reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.diff.cubin import read_cubin
from gpuwatch.errors import UsageError

REFUSALS = [
    "x: expected a cubin (64-bit CUDA ELF), found an empty file; build one with `nvcc -cubin`",
    "x: expected a cubin (64-bit CUDA ELF), found another format; build one with `nvcc -cubin`",
    "x: expected a whole cubin, found a damaged one; build it again",
]
WHOLE = Path(__file__).with_name("sm_80.cubin").read_bytes()


def test_cubin_gives_architecture_and_resources() -> None:
    arch, (kernel,) = read_cubin(WHOLE, "ok.cubin")
    assert arch == "sm_80"
    assert (kernel.symbol, kernel.parameter_bytes, kernel.shared_bytes) == ("_Z1kPf", (8,), 0)
    assert kernel.registers_count == 8


def refusal(data: bytes) -> str:
    try:
        read_cubin(data, "x")
    except UsageError as error:
        return str(error)
    return ""


@given(st.integers(0, len(WHOLE) - 1))
def test_cut_cubin_is_refused_or_read(length: int) -> None:
    assert refusal(WHOLE[:length]) in ("", *REFUSALS)


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=20))
@example([(47, 128)])  # an offset of the section headers of at least 2**63
def test_changed_cubin_is_refused_or_read(changes: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE)
    for place, value in changes:
        data[place] = value
    assert refusal(bytes(data)) in ("", *REFUSALS)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x02\x01\x01" + bytes(100)])
def test_other_bytes_are_not_a_cubin(data: bytes) -> None:
    assert refusal(data) in REFUSALS
