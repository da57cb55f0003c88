"""Tests of gpuwatch explain: rules, clock event reasons, masks and statuses."""

from __future__ import annotations

import pytest

from annotate import clock_reasons
from annotate.evidence import Reason
from annotate.rules import RULES
from annotate.verdict import Status
from tests.gpuwatch.cli.conftest import Gpuwatch


def test_explain_lists_every_rule_and_prints_its_page(gpuwatch: Gpuwatch) -> None:
    listed = gpuwatch("explain").out
    for rule in RULES:
        assert rule.name in listed
        assert gpuwatch("explain", rule.name).out.startswith(f"## {rule.name}\n")


def test_explain_writes_the_rules_as_json(gpuwatch: Gpuwatch) -> None:
    data = gpuwatch("explain", "--json").data
    assert [rule["name"] for rule in data["rules"]] == [rule.name for rule in RULES]
    assert gpuwatch("explain", RULES[0].name, "--json").data["rule"] == data["rules"][0]


def test_explain_keeps_the_json_names_of_sections(gpuwatch: Gpuwatch) -> None:
    """The page has a section "Limits of detection", and the JSON keeps this section's name of version 0.1.0."""
    sections = gpuwatch("explain", "power-limited", "--json").data["rule"]["sections"]
    assert list(sections) == ["Why it matters", "What it cannot see", "Remedy", "Source"]
    shown = gpuwatch("explain", "power-limited").out
    assert "**Limits of detection.** " in shown
    assert "*Message:* power-capped" in shown


@pytest.mark.parametrize(
    "word",
    [
        "sw_power_cap",
        "SwPowerCap",
        "SW_POWER_CAP",
        "0x4",
        "4",
        "nvmlClocksEventReasonSwPowerCap",
        "clocks_event_reasons.sw_power_cap",
    ],
)
def test_clock_reason_is_found_by_each_of_its_names(word: str) -> None:
    assert clock_reasons.named(word) == Reason.SW_POWER_CAP


def test_every_clock_reason_has_an_entry_and_is_found_by_name() -> None:
    assert set(clock_reasons.REASONS) == set(Reason)
    for reason, explained in clock_reasons.REASONS.items():
        assert clock_reasons.named(explained.name) == reason


def test_explain_splits_a_mask_and_names_unknown_bits(gpuwatch: Gpuwatch) -> None:
    data = gpuwatch("explain", "0x100000044", "--json").data
    assert [reason["name"] for reason in data["reasons"]] == ["sw_power_cap", "hw_thermal_slowdown"]
    assert data["unknown_mask"] == 1 << 32
    assert "newer than driver 580" in gpuwatch("explain", "0x4000").out


@pytest.mark.parametrize("word", ["0", "0x0", "0x0000000000000000"])
def test_explain_of_an_empty_mask_names_no_reason(gpuwatch: Gpuwatch, word: str) -> None:
    assert "no reason was active" in gpuwatch("explain", word).out


@pytest.mark.parametrize("status", Status)
def test_explain_prints_the_meaning_of_a_status(gpuwatch: Gpuwatch, status: Status) -> None:
    assert gpuwatch("explain", status.value.upper()).out.startswith(f"{status.value}\n  ")


def test_explain_of_an_unknown_name_suggests_the_nearest(gpuwatch: Gpuwatch) -> None:
    assert "did you mean 'regime-change'? `gpuwatch explain` lists them" in gpuwatch("explain", "regim").err
    assert gpuwatch("explain", "zzz").err == "gpuwatch: unknown rule, reason or status 'zzz'; `gpuwatch explain` lists them\n"


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_rule_page_on_a_terminal_has_no_markup_and_fits(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = gpuwatch("explain", rule).out
    assert not {"`", "**", "{", "|--"} & {mark for mark in ("`", "**", "{", "|--") if mark in shown}
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_reason_page_on_a_terminal_has_no_markup_and_fits(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    shown = gpuwatch("explain", "sw_power_cap").out
    assert "sw_power_cap (0x4)" in shown
    assert "Judged by: " in " ".join(shown.split())
    assert "##" not in shown
    assert all(len(line) <= 70 for line in shown.splitlines())


@pytest.mark.parametrize("word", ["0", "-4", "", "power"])
def test_other_text_names_no_clock_reason(word: str) -> None:
    assert clock_reasons.named(word) is None
