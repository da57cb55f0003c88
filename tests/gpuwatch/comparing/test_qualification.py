"""Tests of qualifications as files: references of several cards, results as references, and other files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from annotate.budget import Number
from gpuwatch.comparing.qualification import Amount, read_cards, same_model, save_card
from gpuwatch.errors import UsageError
from tests.gpuwatch.comparing.cards import fleet, healthy
from tests.gpuwatch.measuring.scripted import verdict


def test_reference_grows_by_cards(tmp_path: Path) -> None:
    """A card is added to the reference, and replaces its own earlier result."""
    path, cards = tmp_path / "fleet.json", fleet(3)
    assert [save_card(path, card) for card in cards] == [1, 2, 3]
    later = replace(cards[0], measured_wall_s=5.0)
    assert save_card(path, later) == 3
    due = [card.without_uuids() for card in (later, *cards[1:])]
    assert {card.card_key: card for card in read_cards([path])} == {card.card_key: card for card in due}
    assert not [card for card in cards if card.device.uuid in path.read_text()]
    assert due[0].without_uuids() == due[0]


def test_results_and_folders_are_references(tmp_path: Path) -> None:
    first, second = fleet(2)
    for number, card in enumerate((first, second, replace(first, measured_wall_s=9.0))):
        (tmp_path / f"{number}.json").write_text(json.dumps({"schema": 1, "qualification": card.to_dict(), "decision": {}}))
    found = {card.device.uuid: card.measured_wall_s for card in read_cards([tmp_path])}
    assert found == {first.device.uuid: 9.0, second.device.uuid: 0.0}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": 2, "cards": []}',
        '{"schema": 1}',
        '{"schema": 1, "cards": [{}]}',
        '{"schema": 1, "cards": 3}',
        '{"schema": 1, "cards": [], "more": NaN}',
        '{"schema": 1, "cards": [], "more": 1e999}',
        "[" * 5000,
    ],
)
def test_other_files_are_refused_as_references(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"other\.json: expected a file of --save-reference"):
        read_cards([path])
    with pytest.raises(UsageError):
        save_card(path, healthy())
    assert path.read_text() == text
    os.truncate(path, 17 << 20)
    with pytest.raises(UsageError, match=r"other\.json: expected .*, found: more than 16 MiB"):
        read_cards([path])


@pytest.mark.parametrize("wrong", [{"value": 0.0}, {"value": -1.0}, {"half_ratio": -1.0}, {"clock_mhz": 1e999}])
def test_invalid_numbers_in_references_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    card, path = healthy(), tmp_path / "card.json"
    fields = {"value": 1.0, "half_ratio": 0.1} | wrong
    data = card.to_dict() | {"amounts": {"copy_s": fields}}
    path.write_text(json.dumps({"schema": 1, "cards": [data]}))
    with pytest.raises(UsageError, match=r"copy_s is not a positive number|expected a file of"):
        read_cards([path])


def test_missing_files_and_empty_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_cards([tmp_path / "none.json"])
    with pytest.raises(UsageError, match="found none in"):
        read_cards([tmp_path])


def test_same_model_falls_back_to_all_cards() -> None:
    cards = fleet(2)
    assert same_model(cards, cards[0].device.name) == cards
    assert same_model(cards, "NVIDIA A100") == cards


def test_amount_needs_a_number() -> None:
    assert Amount.of(verdict(), Number.MEDIAN) is None
    assert Amount.of_series(None) is None
    assert Amount.of_series(np.full(19, 1500.0)) is None


def test_swinging_series_is_wider_and_plain_data() -> None:
    """The interval of a swinging clock is wider than the interval of the same values in random order."""
    rng = np.random.default_rng(3)
    swinging = 1500.0 * np.exp(0.01 * np.repeat(rng.standard_normal(8), 25) + 0.001 * rng.standard_normal(200))
    amount, calm = Amount.of_series(swinging), Amount.of_series(rng.permutation(swinging))
    assert amount is not None
    assert calm is not None
    assert (type(amount.value), type(amount.half_ratio)) == (float, float)
    assert (amount.half_ratio or 0.0) > (calm.half_ratio or 0.0) > 0.0006
