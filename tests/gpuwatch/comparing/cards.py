"""Qualified simulated cards with small random differences between their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from gpuwatch.comparing.qualification import Amount, Qualification, StampsSeen
from gpuwatch.comparing.qualify_run import qualification_of
from gpuwatch.comparing.simulated_instance import probe_scene
from gpuwatch.sources.simulated import SCENES, Scene, simulate

STEADY = SCENES["steady-gemm"]
SPREAD_RATIO = 0.001  # between synthetic cards


@cache
def healthy() -> Qualification:
    """Return a healthy simulated card with every number."""
    card = qualified(STEADY)
    software, stamps = {"gemm": "cuBLAS 13.1", "torch": "2.11"}, StampsSeen(sms_count=132, seen_count=132, apart_ratio=0.0)
    launch = Amount(value=9e-6, half_ratio=0.01)
    return replace(card, amounts={**card.amounts, "launch_s": launch}, missing={}, software=software, stamps=stamps)


def qualified(scene: Scene, seed: int = 0) -> Qualification:
    device = simulate(replace(scene, bench=(0.5, 0.6)))[0].device
    assert device is not None
    return qualification_of(device, probe_scene(scene, seed))


def fleet(count: int, seed: int = 0, spread_ratio: float = SPREAD_RATIO) -> tuple[Qualification, ...]:
    """Return ``count`` cards whose numbers differ randomly from those of the healthy card."""
    rng = np.random.default_rng(seed)
    return tuple(varied(healthy(), f"GPU-{seed}-{number}", rng, spread_ratio) for number in range(count))


def varied(card: Qualification, uuid: str, rng: np.random.Generator, spread_ratio: float = SPREAD_RATIO) -> Qualification:
    """Return the card with another UUID and each number changed randomly."""
    moved = {name: times(amount, float(np.exp(spread_ratio * rng.standard_normal()))) for name, amount in card.amounts.items()}
    return replace(card, device=replace(card.device, uuid=uuid), amounts=moved)


def times(amount: Amount, factor: float) -> Amount:
    return replace(amount, value=amount.value * factor)


def slowed(card: Qualification, names: Sequence[str], factor: float) -> Qualification:
    return replace(card, amounts={**card.amounts, **{name: times(card.amounts[name], factor) for name in names}})
