"""Tests of durations, sizes and shares with units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.config import quantities
from gpuwatch.config.quantities import QuantityError


@pytest.mark.parametrize(
    ("text", "amount_ns"),
    [
        ("50ms", 50_000_000),
        ("2.5 s", 2_500_000_000),
        ("20 µs", 20_000),
        ("1min", 60_000_000_000),
        ("0", 0),
        ("7d", 604_800_000_000_000),
    ],
)
def test_duration_ns_reads_durations_with_units(text: str, amount_ns: int) -> None:
    assert quantities.duration_ns(text) == amount_ns


@pytest.mark.parametrize(
    ("text", "amount_s"), [("5m", 300), ("1.5 m", 90), ("30", 30), ("0.5", 0.5), ("5ms", 0.005), ("2h", 7200)]
)
def test_lapse_ns_reads_bare_seconds_and_m_for_minutes(text: str, amount_s: float) -> None:
    assert quantities.lapse_ns(text) == amount_s * 1e9


@pytest.mark.parametrize(
    ("text", "clock", "written"),
    [
        ("1410", 1410.0, "1410 MHz"),
        (" 1410.5MHz ", 1410.5, "1410.5 MHz"),
        (
            "NVIDIA B200=1500,NVIDIA H100 80GB HBM3 = 1410 MHz",
            {"NVIDIA B200": 1500.0, "NVIDIA H100 80GB HBM3": 1410.0},
            "NVIDIA B200=1500 MHz, NVIDIA H100 80GB HBM3=1410 MHz",
        ),
    ],
)
def test_reference_clock_reads_one_clock_or_one_per_model(text: str, clock: object, written: str) -> None:
    """The written form of a reference clock is read as the same clock."""
    found = quantities.reference_clock(text)
    assert (found, quantities.reference_clock_text(found)) == (clock, written)
    assert quantities.reference_clock(written) == clock


@pytest.mark.parametrize("text", ["", "fast", "1410 GHz", "99", "5001", "=1410", "A=1410,", "A=1410,1500", "A=1410,A=1500"])
def test_reference_clock_refuses_other_text(text: str) -> None:
    with pytest.raises(QuantityError, match=r"\Aexpected a (reference )?clock"):
        quantities.reference_clock(text)


@pytest.mark.parametrize("text", ["", "m", "-5m", "1e9", "5mm", "soon"])
def test_lapse_ns_refuses_other_text(text: str) -> None:
    with pytest.raises(QuantityError, match="expected a duration"):
        quantities.lapse_ns(text)


@pytest.mark.parametrize(("text", "size"), [("2GiB", 2 << 30), ("1.5 MiB", 3 << 19), ("10kB", 10_000), ("0", 0)])
def test_size_bytes_reads_sizes_with_units(text: str, size: int) -> None:
    assert quantities.size_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["50", "ms", "", "-1s", "5 parsecs", "1e3s", "50 ms ms", "1.s", "0.3ns", "٣s", "99999999999999w"]
)
def test_duration_ns_refuses_other_text(text: str) -> None:
    with pytest.raises(QuantityError, match="expected a duration") as caught:
        quantities.duration_ns(text)
    assert repr(text) in str(caught.value)


def test_size_bytes_suggests_the_case_of_a_unit() -> None:
    with pytest.raises(QuantityError, match="did you mean GiB"):
        quantities.size_bytes("2gib")


@pytest.mark.parametrize("text", ["1", "101 %", "0.01", "% 1", "one %"])
def test_share_ratio_refuses_text_without_a_percent_sign(text: str) -> None:
    with pytest.raises(QuantityError, match="expected a share"):
        quantities.share_ratio(text)


@given(st.integers(0, 10**18))
def test_duration_round_trips_through_text(amount_ns: int) -> None:
    assert quantities.duration_ns(quantities.duration_text(amount_ns)) == amount_ns


@given(st.integers(0, 1 << 50))
def test_size_round_trips_through_text(size: int) -> None:
    assert quantities.size_bytes(quantities.size_text(size)) == size


@given(st.integers(0, 10_000))
def test_share_round_trips_through_text(ten_thousandths: int) -> None:
    ratio = ten_thousandths / 10_000
    assert quantities.share_ratio(quantities.share_text(ratio)) == pytest.approx(ratio, rel=1e-12, abs=0)


@given(st.text(max_size=12))
def test_any_text_is_an_amount_or_a_one_line_error(text: str) -> None:
    for read in (quantities.duration_ns, quantities.size_bytes, quantities.share_ratio):
        refused = ""
        try:
            assert read(text) >= 0
        except QuantityError as error:
            refused = str(error)
        assert "\n" not in refused
