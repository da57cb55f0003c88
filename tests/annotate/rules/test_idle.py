"""Tests of idle-stretch, mostly on loops that wait for their launches or rest in a rhythm."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from annotate.budget import Number
from annotate.claims import Claim
from annotate.evidence import Evidence, Timings
from annotate.rule import Answer, Clear, Found
from annotate.rules.idle import RULES, idle_stretch
from tests.annotate.builders import BEGIN_NS, evidence
from tests.annotate.occurrences.numbers import timed


def ask(about: Evidence) -> Answer:
    return idle_stretch.ask(about, Claim.SUSTAINED)


def lost(answer: Answer) -> float:
    """Return the bound of throughput; 0 for a Clear answer."""
    if not isinstance(answer, Found):
        assert isinstance(answer, Clear), answer
        return 0.0
    (bound,) = (each for each in answer.bounds if each.number is Number.THROUGHPUT)
    return bound.size_ratio


def launch_bound(seed: int) -> Callable[[float], float]:
    """Return the utilisation of a loop that waits for its launches: about 0.58, different at every refresh."""
    pages = np.random.default_rng(seed).normal(0.58, 0.03, 200)
    return lambda t: round(float(pages[int((t + 6.0) / 0.208)]), 2)


def test_waiting_for_launches_is_not_idle_with_times() -> None:
    """Calls of 8 µs, each after a gap of 2 to 40 µs, have hardly any idle stretches."""
    rng = np.random.default_rng(1)
    times = timed(np.full(60_000, 8e-6) + 0.0, gap_s=0.0)
    gaps_ns = np.cumsum(rng.uniform(2e3, 40e3, 60_000)).astype(np.int64)
    length_s = 60_000 * 8e-6 + float(gaps_ns[-1]) / 1e9
    spread = evidence(length_s=length_s, timings=type(times)(times.at_ns + gaps_ns, times.took_s))
    assert lost(ask(spread)) < 0.001


@pytest.mark.parametrize("seed", range(5))
def test_waiting_for_launches_is_not_idle_without_times(seed: int) -> None:
    assert lost(ask(evidence(length_s=4.0, signals={"utilization_ratio": launch_bound(seed), "power_w": 260.0}))) < 0.001


def test_stall_of_a_waiting_loop_is_found() -> None:
    """Half a second without work in 4 s costs 0.5 / 4 of the usual utilisation of 0.58."""
    usual = launch_bound(7)
    signals = {"utilization_ratio": lambda t: 0.0 if 2.0 <= t < 2.5 else usual(t), "power_w": 260.0}
    assert lost(ask(evidence(length_s=4.0, signals=signals))) == pytest.approx(0.58 * 0.5 / 4.0, abs=0.02)


def paged(busy: Callable[[float], bool]) -> Callable[[float], float]:
    """Return utilisation with a refresh of 0.208 s, each value the busy share of the refresh before."""

    def shown(t: float) -> float:
        begin_s = (int((t + 6.0) / 0.208) - 1) * 0.208 - 6.0
        return round(float(np.mean([busy(begin_s + part * 0.0052) for part in range(40)])), 2)

    return shown


@pytest.mark.parametrize(("rest_s", "every_s"), [(0.3, 1.3), (0.5, 1.3), (0.5, 1.9)])
def test_regular_rest_is_not_a_stall_without_times(rest_s: float, every_s: float) -> None:
    busy = paged(lambda t: t % every_s > rest_s)
    assert lost(ask(evidence(length_s=15.0, signals={"utilization_ratio": busy, "power_w": 260.0}))) == 0.0


def test_stall_of_a_resting_loop_is_found() -> None:
    """A rest of 4 s in a loop that otherwise rests for 0.3 s in every 1.9 s is found."""
    busy = paged(lambda t: t % 1.9 > 0.3 and not 11.0 < t < 15.0)
    answer = ask(evidence(length_s=30.0, signals={"utilization_ratio": busy, "power_w": 260.0}))
    assert lost(answer) == pytest.approx(4.0 / 30.0, abs=0.02)


def test_stalls_of_many_lengths_are_found_by_utilisation() -> None:
    stalls = ((1.0, 1.2), (2.0, 2.9), (4.0, 4.4), (6.0, 6.1), (8.0, 8.7))
    busy = paged(lambda t: not any(begin < t < end for begin, end in stalls))
    answer = ask(evidence(length_s=10.0, signals={"utilization_ratio": busy, "power_w": 260.0}))
    assert lost(answer) == pytest.approx(0.23, abs=0.02)


def test_idle_family_lists_its_rules() -> None:
    assert [rule.name for rule in RULES] == ["no-work", "idle-stretch"]


def stalled(power_w: float, stalls_s: Sequence[float]) -> Answer:
    """Return the answer for 4 s of calls of 2 ms, with stalls of these lengths in place of calls."""
    count = int((4.0 - sum(stalls_s)) / 2.01e-3)
    at_ns = BEGIN_NS + np.arange(count, dtype=np.int64) * 2_010_000
    for i, stall_s in enumerate(stalls_s):
        at_ns[100 + 150 * i :] += int(stall_s * 1e9)
    length_s = (int(at_ns[-1]) - BEGIN_NS) / 1e9 + 2e-3
    return ask(evidence(length_s=length_s, signals={"power_w": power_w}, timings=Timings(at_ns, np.full(count, 2e-3))))


def test_stalls_near_the_limit_bound_the_times() -> None:
    """Stalls of 3 % give mean and median a bound of 1 % near the power limit, and a bound of 0 far below the limit."""
    found = stalled(690.0, [0.04, 0.04, 0.04])
    assert isinstance(found, Found)
    bought = {each.number: each for each in found.bounds if each.number is not Number.THROUGHPUT}
    assert {*bought} == {Number.MEAN, Number.MEDIAN}
    assert all(each.ratio == pytest.approx(0.01, rel=0.1) and each.estimate is None for each in bought.values())
    cool = stalled(300.0, [0.04, 0.04, 0.04])
    assert isinstance(cool, Found)
    assert [each.ratio for each in cool.bounds if each.number is not Number.THROUGHPUT] == [0.0, 0.0]


def test_short_stalls_count_with_several_longer_ones() -> None:
    """Stalls of 0.8 ms count if there are three longer ones; with a single longer one they do not."""
    assert lost(stalled(300.0, [5e-3] * 3 + [8e-4] * 4)) - lost(stalled(300.0, [5e-3] * 3)) == pytest.approx(8e-4, rel=0.05)
    assert lost(stalled(300.0, [5e-3] + [8e-4] * 4)) == pytest.approx(lost(stalled(300.0, [5e-3])), rel=0.01)


@pytest.mark.parametrize(("used", "what"), [(0.98, "the GPU was busy, but no call was timed,"), (0.03, "the GPU idled")])
def test_untimed_stretch_is_called_idle_only_if_it_was(used: float, what: str) -> None:
    """Times recorded before the work leave a stretch without timed calls, in which utilisation shows whether the GPU idled."""
    times = Timings(BEGIN_NS + np.arange(100, dtype=np.int64) * 310_000, np.full(100, 3e-4))
    answer = ask(evidence(length_s=3.0, signals={"utilization_ratio": used}, timings=times))
    assert isinstance(answer, Found)
    assert str(answer.facts["what"]) == f"{what} from 0.03 to 3.00 s (-99.0% throughput)"
    assert ("record()" in str(answer.facts["advice"])) == (used > 0.5)
