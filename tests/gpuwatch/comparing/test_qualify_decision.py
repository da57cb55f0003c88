"""Tests of a qualification's decision: each kind of difference is found, and usual differences are accepted."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gpuwatch.comparing.qualification import Amount, Qualification, shipped_cards
from gpuwatch.comparing.qualify_decision import PROBES, Comparable, Likeness, QualifyDecision, decide
from gpuwatch.sources.simulated import SCENES
from gpuwatch.sources.simulated.kernels import COPY
from gpuwatch.sources.simulated.scenes import FOREVER_S, Fault, Mishap, SimulatedBoard
from tests.gpuwatch.comparing.cards import STEADY, fleet, healthy, qualified, slowed, varied


@cache
def cards() -> tuple[Qualification, ...]:
    """Return six simulated cards, made at first use, so that the import of this module simulates nothing."""
    return fleet(6)


def on(card: Qualification) -> QualifyDecision:
    return decide(replace(card, device=replace(card.device, uuid="GPU-here")), cards())


def likenesses(found: QualifyDecision) -> dict[str, Likeness]:
    return {each.probe.name: each.likeness for each in found.probes}


def simulated(**changes: object) -> QualifyDecision:
    """Return the decision on a GPU of a changed scene; launch time, software and stamps are the healthy card's."""
    found = qualified(replace(STEADY, **changes))  # type: ignore[arg-type]
    launch = healthy().amounts["launch_s"]
    seen = replace(found, amounts={**found.amounts, "launch_s": launch}, software=healthy().software)
    return on(replace(seen, stamps=healthy().stamps))


def test_healthy_card_is_comparable() -> None:
    found = on(healthy())
    assert (found.comparable, found.reasons, found.facts, found.cards_count) == (Comparable.YES, (), (), 6)
    assert set(likenesses(found)) == {probe.name for probe in PROBES}


def test_slow_memory_is_found_by_the_copy() -> None:
    """A memory clock 10 % low slows the copy, so that no number of the instance is comparable."""
    slow = Mishap(fault=Fault.MEMORY_CLOCK, begin_s=0.0, end_s=FOREVER_S, value=2881.0)
    found = simulated(mishaps=(slow,))
    copy = next(each for each in found.probes if each.probe.name == "copy_s")
    assert (found.comparable, copy.likeness, copy.speed) == (Comparable.NO, Likeness.DIFFERENT, "slower")
    assert copy.low_ratio < (3201 / 2881) ** (1.0 - COPY.beta) - 1.0 < copy.high_ratio
    assert any("copy 1 GiB" in reason and "slower" in reason for reason in found.reasons)


def test_low_power_limit_leaves_numbers_at_one_clock() -> None:
    """A limit of 500 W slows the capped GEMM and its clock, but not the GEMM's time at one clock."""
    found = simulated(board=SimulatedBoard(power_limit_w=500.0))
    assert found.comparable is Comparable.PARTLY
    assert "power limit 500 W, reference 700 W" in found.reasons
    alike = likenesses(found)
    assert (alike["gemm_s"], alike["gemm_clock_mhz"]) == (Likeness.DIFFERENT, Likeness.DIFFERENT)
    assert (alike["copy_s"], alike["light_clock_mhz"]) == (Likeness.ALIKE, Likeness.ALIKE)
    assert alike["gemm_at_clock_s"] is not Likeness.DIFFERENT
    assert next(each for each in found.probes if each.probe.name == "gemm_clock_mhz").speed == "slower"


@pytest.mark.parametrize("name", ["neighbour", "hidden-neighbour"])
def test_neighbour_makes_an_instance_not_comparable(name: str) -> None:
    scene = SCENES[name]
    found = simulated(neighbours=scene.neighbours, name=name)
    assert found.comparable is Comparable.NO
    assert any("used" in reason or "busy" in reason or "process" in reason for reason in found.reasons[:1])


def test_hardware_fault_in_a_probe_is_named() -> None:
    found = simulated(mishaps=(Mishap(fault=Fault.SLOWDOWN, begin_s=5.0, end_s=6.0, value=0.5),))
    assert found.comparable is Comparable.NO
    assert any("throttle-hw-slowdown" in reason for reason in found.reasons)


@pytest.mark.parametrize(
    ("facts", "named", "comparable"),
    [
        ({"driver_version": "565.57.01"}, "driver", Comparable.YES),
        ({"vbios_version": "96.00"}, "", Comparable.YES),  # unknown for the others: no difference
        ({"virtualization": "pass-through"}, "virtualisation", Comparable.YES),
        ({"name": "NVIDIA A100 80GB PCIe"}, "model", Comparable.NO),
        ({"cuda_cores_count": 14_592}, "CUDA cores", Comparable.NO),
        ({"ecc_mode": False}, "ECC", Comparable.NO),
        ({"mig_mode": True}, "MIG mode", Comparable.NO),
        ({"memory_total_bytes": 80 << 30}, "memory", Comparable.NO),
        ({"virtualization": "vgpu"}, "virtual GPU", Comparable.NO),
        ({"power_limit_w": 600.0}, "power limit", Comparable.PARTLY),
        ({"sm_clock_max_mhz": 1755}, "maximum SM clock", Comparable.PARTLY),
    ],
)
def test_facts_of_the_driver_are_compared(facts: dict[str, object], named: str, comparable: Comparable) -> None:
    card = healthy()
    found = on(replace(card, device=replace(card.device, **facts)))  # type: ignore[arg-type]
    assert found.comparable is comparable
    assert [fact.name for fact in found.facts if fact.name == named] == ([named] if named else [])


def test_locks_sms_and_software_are_compared() -> None:
    card = healthy()
    assert card.stamps is not None
    found = on(replace(card, sm_clock_lock_mhz=1500, stamps=replace(card.stamps, sms_count=114)))
    assert {fact.name: fact.here for fact in found.facts} == {"SM clock lock": "1500 MHz", "SMs": "114"}
    assert found.comparable is Comparable.NO
    assert [fact.name for fact in on(replace(card, software={**card.software, "torch": "2.9"})).facts] == ["torch"]
    here = replace(card, device=replace(card.device, uuid="GPU-here"))
    assert decide(here, [replace(cards()[0], sm_clock_lock_mhz=1500), *cards()[1:]]).facts == ()


def test_other_library_leaves_products_uncompared() -> None:
    """A GEMM of another cuBLAS is not compared, so the decision is unknown even for a slow GEMM."""
    found = on(slowed(replace(healthy(), software={"gemm": "cuBLAS 12.8"}), ["gemm_s"], 1.3))
    assert found.comparable is Comparable.UNKNOWN
    assert "gemm_s" not in likenesses(found)
    assert any("ran with cuBLAS 12.8, the reference with cuBLAS 13.1" in reason for reason in found.reasons)


def test_unmeasured_number_is_named_and_never_alike() -> None:
    card = healthy()
    left = {name: amount for name, amount in card.amounts.items() if not name.startswith("gemm")}
    bare = replace(card, amounts=left, missing={"gemm_s": "torch is not installed"})
    found = on(bare)
    assert found.comparable is Comparable.UNKNOWN
    assert "GEMM bf16 was not measured: torch is not installed" in found.reasons
    others = [replace(each, amounts={name: each.amounts[name] for name in left}) for each in cards()]
    assert decide(bare, others).comparable is Comparable.YES


def test_decision_without_a_reference_is_unknown() -> None:
    found = decide(healthy(), ())
    assert (found.comparable, found.cards_count, found.probes) == (Comparable.UNKNOWN, 0, ())
    assert found.reasons[0] == "the reference holds no undisturbed SIMULATED NVIDIA H200"


def test_own_earlier_result_is_used_if_alone() -> None:
    """A card is compared with its own earlier result only if the reference holds no other card."""
    card = healthy()
    alone = decide(slowed(card, ["copy_s"], 1.05), [card])
    assert (alone.comparable, alone.is_own) == (Comparable.NO, True)
    assert not decide(card, [slowed(card, ["copy_s"], 9.0), *cards()]).is_own
    assert decide(card, [slowed(card, ["copy_s"], 9.0), *cards()]).comparable is Comparable.YES


def test_disturbed_cards_are_left_out_of_the_reference() -> None:
    beside = [replace(slowed(card, ["copy_s"], 2.0), neighbours=("somebody",)) for card in fleet(3, seed=9)]
    assert decide(healthy(), beside).cards_count == 0
    assert decide(healthy(), [*cards(), *beside]).comparable is Comparable.YES


def test_unbounded_number_is_unclear() -> None:
    card = healthy()
    found = on(replace(card, amounts={**card.amounts, "copy_s": Amount(value=1.0, half_ratio=None)}))
    assert (found.comparable, likenesses(found)["copy_s"]) == (Comparable.UNKNOWN, Likeness.UNCLEAR)
    assert "interval not known" in next(each for each in found.probes if each.probe.name == "copy_s").interval


def test_times_at_other_clocks_are_converted() -> None:
    """Times at other clocks are converted with the cards' common exponent before the comparison."""
    card = healthy()
    at = card.amounts["gemm_at_clock_s"]
    assert at.clock_mhz is not None
    moved = replace(at, clock_mhz=at.clock_mhz * 0.9, value=at.value * 0.9**-0.95, beta=0.95)
    found = on(replace(card, amounts={**card.amounts, "gemm_at_clock_s": moved}))
    assert likenesses(found)["gemm_at_clock_s"] is not Likeness.DIFFERENT


@pytest.mark.parametrize("count", [1, 2, 3, 6, 20])
def test_usual_differences_are_not_called_different(count: int) -> None:
    """A further card of the same fleet is called different in at most 4 of 40 cases."""
    rng = np.random.default_rng(count)
    spread_ratio = 0.001 if count < 3 else 0.01  # one or two cards do not show the spread between cards
    found = [
        decide(varied(healthy(), "GPU-here", rng, spread_ratio), fleet(count, 1000 + trial, spread_ratio))
        for trial in range(40)
    ]
    assert sum(each.comparable in (Comparable.NO, Comparable.PARTLY) for each in found) <= 4


@pytest.mark.parametrize("name", [probe.name for probe in PROBES])
def test_slow_instance_is_found_by_every_probe(name: str) -> None:
    """The launch probe finds a time 50 % longer, and every other probe a time 25 % longer or a rate 20 % lower."""
    probe = next(each for each in PROBES if each.name == name)
    found = on(slowed(healthy(), [name], 0.8 if probe.is_rate else 1.5 if name == "launch_s" else 1.25))
    assert likenesses(found)[name] is Likeness.DIFFERENT
    assert found.comparable is (Comparable.NO if probe.reach.name == "ALL" else Comparable.PARTLY)
    assert any(probe.reach.value in reason for reason in found.reasons)


def test_shipped_cards_agree_and_a_slow_card_is_found() -> None:
    """No shipped card is called different, and a copy that is 5 % slower than a shipped card's is found."""
    cards = shipped_cards("NVIDIA H200")
    assert len(cards) >= 2
    for card in cards:
        assert decide(card, cards).comparable in (Comparable.YES, Comparable.UNKNOWN), card.device.uuid
        new = replace(card, device=replace(card.device, uuid="GPU-new"))
        slow = decide(slowed(new, ["copy_s"], 1.05), cards)
        assert slow.comparable is Comparable.NO
        assert any("copy 1 GiB" in reason for reason in slow.reasons)
    assert shipped_cards("NVIDIA H200 NVL") == ()
