"""Tests of gpuwatch selftest --qualify on simulated GPUs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.cli.qualify import lines
from gpuwatch.comparing.qualification import read_cards
from gpuwatch.comparing.qualify_decision import decide
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.comparing.cards import fleet, healthy

STEADY = ("--source", "simulated:steady-gemm", "selftest", "--qualify")


def test_instance_is_qualified_against_a_saved_reference(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """The second run is comparable with the first run's reference; a neighbour makes the third run incomparable."""
    reference = tmp_path / "fleet.json"
    first = gpuwatch(*STEADY, "--save-reference", str(reference))
    assert (first.code, first.out.splitlines()[0][:9]) == (12, "SIMULATED")
    assert "UNKNOWN: no reference card of this model is available to compare with (0 reference" in first.out
    assert f"{reference} now holds 1 card; to compare: gpuwatch selftest --qualify --reference {reference}" in first.out
    assert "--save-reference" not in first.out
    assert "GPU-" not in reference.read_text()
    again = gpuwatch(*STEADY, "--reference", str(reference))
    assert (again.code, again.err) == (0, "")
    assert "COMPARABLE: numbers of this instance can be compared" in again.out
    assert "this card's own earlier result" in again.out
    assert "a simulated GPU launches nothing" in again.out
    beside = gpuwatch(
        "--source", "simulated:neighbour", "selftest", "--qualify", "--reference", str(tmp_path), "--json",
        "--save-reference", str(reference),
    )  # fmt: skip
    assert beside.code == 11
    check(beside.data, "urn:gpuwatch:cli:1#/$defs/qualify")
    assert "60101" in beside.data["decision"]["reasons"][0]
    assert "was not changed" in beside.err
    assert len(read_cards([reference])) == 1


def test_qualify_result_as_json_serves_as_reference(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    found = gpuwatch(*STEADY, "--json")
    check(found.data, "urn:gpuwatch:cli:1#/$defs/qualify")
    (tmp_path / "node1.json").write_text(found.out)
    assert gpuwatch(*STEADY, "--reference", str(tmp_path / "node1.json")).code == 0


def test_qualify_without_a_driver_is_one_line(gpuwatch: Gpuwatch) -> None:
    ended = gpuwatch("--source", "nvml", "selftest", "--qualify")
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert gpuwatch("selftest", "--qualify", "--source", "replay:x.npz").code == 2
    ended = gpuwatch("selftest", "--qualify")
    assert ended.code == 1
    assert "expected an NVIDIA driver" in ended.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("selftest", "--reference", "x"), "--reference: expected --qualify with it, found none"),
        (("selftest", "--save-reference", "x"), "--save-reference: expected --qualify with it, found none"),
        (("selftest", "--qualify", "--show"), "--qualify: expected no --seconds or --show"),
        (("selftest", "--qualify", "--seconds", "2"), "--qualify: expected no --seconds or --show"),
        (("selftest", "--qualify", "--reference", "/nowhere/x.json"), "/nowhere/x.json: No such file"),
        (("selftest", "--qualify", "--save-reference", "/nowhere/x.json"), "expected a folder /nowhere"),
    ],
)
def test_qualify_refuses_wrong_usage_before_measuring(gpuwatch: Gpuwatch, arguments: tuple[str, ...], says: str) -> None:
    ended = gpuwatch("--source", "simulated:steady-gemm", *arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert says in ended.err


def test_qualify_does_not_overwrite_another_file(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text(json.dumps({"mine": 1}))
    assert gpuwatch(*STEADY, "--save-reference", str(path)).code == 2
    assert json.loads(path.read_text()) == {"mine": 1}


def test_qualify_advises_a_reference_only_without_cards() -> None:
    card = healthy()
    with_cards, alone = ("\n".join(lines(card, decide(card, cards))) for cards in (fleet(4), ()))
    assert "--save-reference" not in with_cards
    assert alone.endswith("to make this card a reference: --save-reference FILE")


def test_qualify_prints_instance_numbers_and_differences() -> None:
    """The output names another driver, 114 stamped SMs, and a clock lock with the affected numbers."""
    card = healthy()
    assert card.stamps is not None
    device = replace(card.device, uuid="GPU-here", driver_version="565.57.01")
    other = replace(card, device=device, stamps=replace(card.stamps, seen_count=114), sm_clock_lock_mhz=1500)
    text = "\n".join(lines(replace(other, host={"cpu": "EPYC"}), decide(other, fleet(4))))
    for words in (
        "lock 1500 MHz", "stamps: 114 of 132 SMs", "cpu EPYC", "driver: 565.57.01, reference 580.159.04 (simulated)\n",
        "SM clock lock: 1500 MHz, reference none (affects numbers at the clock of the moment", "PARTLY COMPARABLE", "4 reference cards",
    ):  # fmt: skip
        assert words in text
