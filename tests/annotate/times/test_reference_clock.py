"""The clock at which a model's numbers are stated, and the spread between cards of a model."""

from __future__ import annotations

import pytest

from annotate.times.reference_clock import CARD_SPREADS_RATIO, REFERENCE_CLOCKS_MHZ, card_spread_ratio, reference_clock_mhz


def test_reference_clock_of_a_measured_model() -> None:
    assert reference_clock_mhz("NVIDIA H200") == 1500.0


@pytest.mark.parametrize("model", ["NVIDIA H200 NVL", "NVIDIA H200 MIG 1g.18gb"])
def test_variant_of_a_model_has_its_reference_clock(model: str) -> None:
    assert reference_clock_mhz(model) == 1500.0


@pytest.mark.parametrize("model", ["NVIDIA H2000", "NVIDIA A100-SXM4-80GB", "", None])
def test_unknown_model_has_no_reference_clock(model: str | None) -> None:
    assert reference_clock_mhz(model) is None


@pytest.mark.parametrize("model", ["NVIDIA H200", "NVIDIA A100-SXM4-80GB", None])
def test_given_reference_clock_wins(model: str | None) -> None:
    assert reference_clock_mhz(model, 1410) == 1410.0


@pytest.mark.parametrize("mhz", [0.0, -1.0, 20_000.0, float("nan"), float("inf")])
def test_given_reference_clock_outside_any_sm_is_refused(mhz: float) -> None:
    with pytest.raises(ValueError, match="expected a reference clock from 100 to 5000 MHz, found"):
        reference_clock_mhz("NVIDIA H200", mhz)


def test_given_table_precedes_the_recorded_one() -> None:
    """The longest name of a model counts, and models outside the given table keep the recorded clock."""
    given = {"NVIDIA H100": 1410, "NVIDIA H100 NVL": 1300, "NVIDIA B200": 1500}
    models = ("NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL", "NVIDIA H200", "NVIDIA A100-SXM4-80GB")
    assert [reference_clock_mhz(model, given) for model in models] == [1410.0, 1300.0, 1500.0, None]


def test_every_reference_clock_is_a_possible_sm_clock() -> None:
    assert all(reference_clock_mhz(None, mhz) == mhz for mhz in REFERENCE_CLOCKS_MHZ.values())


@pytest.mark.parametrize(
    ("model", "given", "ratio"),
    [
        ("NVIDIA H200", None, 0.0034),
        ("NVIDIA H200 NVL", None, 0.0034),
        ("NVIDIA H100", None, None),
        ("NVIDIA H200", 0.01, 0.01),
    ],
)
def test_spread_between_cards_is_on_record_or_given(model: str, given: float | None, ratio: float | None) -> None:
    assert card_spread_ratio(model, given) == ratio


def test_every_model_with_a_spread_has_a_reference_clock() -> None:
    assert CARD_SPREADS_RATIO.keys() <= REFERENCE_CLOCKS_MHZ.keys()
