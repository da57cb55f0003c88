"""Tests of kernel names and parameter types from mangled symbols."""

from __future__ import annotations

import pytest

from gpuwatch.diff.symbols import base_name, full_name, parameter_types

SCALE = "_Z5scaleIfLi256EEvPKT_PS0_S0_i"


@pytest.mark.parametrize(
    ("symbol", "full", "base"),
    [
        (SCALE, "scale<float, 256>", "scale"),
        ("_ZN3lib6reduceEPKfPfi", "lib::reduce", "reduce"),
        ("_ZN12_GLOBAL__N_14copyEPf", "(anonymous namespace)::copy", "copy"),
        ("_Z1kPf", "k", "k"),
        ("saxpy", "saxpy", "saxpy"),
        ("_Znot_mangled", "_Znot_mangled", "_Znot_mangled"),
    ],
)
def test_names_are_demangled(symbol: str, full: str, base: str) -> None:
    assert (full_name(symbol), base_name(symbol)) == (full, base)


def test_parameter_types_come_from_the_symbol() -> None:
    assert parameter_types(SCALE) == ("float const*", "float*", "float", "int")
    assert parameter_types("_Z1kv") == ()
    assert parameter_types("saxpy") is None
