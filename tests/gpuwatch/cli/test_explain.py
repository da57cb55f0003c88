from __future__ import annotations

import pytest

from annotate import clock_reasons
from annotate.evidence import Reason
from annotate.rules import RULES
from annotate.verdict import Status
from tests.gpuwatch.cli.conftest import Gpuwatch


def test_every_rule_is_listed_and_has_its_page(gpuwatch: Gpuwatch) -> None:
    listed = gpuwatch("explain").out
    for rule in RULES:
        assert rule.name in listed
        assert gpuwatch("explain", rule.name).out.startswith(f"## {rule.name}\n")


def test_the_rules_are_data_too(gpuwatch: Gpuwatch) -> None:
    data = gpuwatch("explain", "--json").data
    assert [rule["name"] for rule in data["rules"]] == [rule.name for rule in RULES]
    assert gpuwatch("explain", RULES[0].name, "--json").data["rule"] == data["rules"][0]


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
def test_a_reason_is_found_by_any_of_its_names(word: str) -> None:
    assert clock_reasons.named(word) == Reason.SW_POWER_CAP


def test_every_reason_is_explained_and_found_by_its_own_name() -> None:
    assert set(clock_reasons.REASONS) == set(Reason)
    for reason, explained in clock_reasons.REASONS.items():
        assert clock_reasons.named(explained.name) == reason


def test_a_mask_is_taken_apart_and_unknown_bits_are_kept(gpuwatch: Gpuwatch) -> None:
    data = gpuwatch("explain", "0x100000044", "--json").data
    assert [reason["name"] for reason in data["reasons"]] == ["sw_power_cap", "hw_thermal_slowdown"]
    assert data["unknown_mask"] == 1 << 32
    assert "newer than driver 580" in gpuwatch("explain", "0x4000").out


@pytest.mark.parametrize("word", ["0", "0x0", "0x0000000000000000"])
def test_no_reason_is_explained_too(gpuwatch: Gpuwatch, word: str) -> None:
    assert "no reason was active" in gpuwatch("explain", word).out


@pytest.mark.parametrize("status", Status)
def test_a_status_is_explained(gpuwatch: Gpuwatch, status: Status) -> None:
    assert gpuwatch("explain", status.value.upper()).out.startswith(f"{status.value}\n  ")


def test_an_unknown_name_gets_the_nearest_and_not_the_whole_list(gpuwatch: Gpuwatch) -> None:
    assert "did you mean 'regime-change'? `gpuwatch explain` lists them" in gpuwatch("explain", "regim").err
    assert gpuwatch("explain", "zzz").err == "gpuwatch: unknown rule or reason 'zzz'; `gpuwatch explain` lists them\n"


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_a_page_on_a_terminal_has_no_marks_and_fits(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = gpuwatch("explain", rule).out
    assert not {"`", "**", "{", "|--"} & {mark for mark in ("`", "**", "{", "|--") if mark in shown}
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_a_reason_on_a_terminal_is_laid_out_as_a_page(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    shown = gpuwatch("explain", "sw_power_cap").out
    assert "sw_power_cap (0x4)" in shown
    assert "Judged by: " in " ".join(shown.split())
    assert "##" not in shown
    assert all(len(line) <= 70 for line in shown.splitlines())


@pytest.mark.parametrize("word", ["0", "-4", "", "power"])
def test_what_is_no_reason_is_not_taken_for_one(word: str) -> None:
    assert clock_reasons.named(word) is None
