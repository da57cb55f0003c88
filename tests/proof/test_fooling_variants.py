"""Windows with misleading times, of the kinds that fooled the judge, and honest counterparts, unseen when the rules were fixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from annotate.evidence import Column, Evidence, Timings
from annotate.judge import judge
from annotate.verdict import Verdict
from tests.proof.chance import generator
from tests.proof.fooling_stage import WORK, Act, Edit, Setting, act, column
from tests.proof.streams import Iterations
from tests.proof.testified import Variant

_EVER_S = 1e3


def _run(work: str, variant: Variant = Variant.TIMES, *, length_s: float = 4.0, seed: int = 11) -> Act:
    return act(Setting(work=WORK[work], variant=variant, length_s=length_s, seed=seed))


def _bound(verdict: Verdict, name: str) -> float:
    assert verdict.budget is not None
    found = next(each for each in verdict.budget.numbers if each.number.value == name)
    return float("inf") if found.bound_ratio is None else found.bound_ratio


@pytest.mark.parametrize(("work", "every"), [("attention", 20), ("decoding", 30), ("softmax", 2), ("training", 4)])
@pytest.mark.parametrize("variant", [Variant.TIMES, Variant.DURATIONS])
def test_duplicate_entries_bound_the_rate(work: str, every: int, variant: Variant) -> None:
    """Entries recorded twice flag the window, and the bound covers the extra rate, with and without start times."""

    def change(ran: Iterations) -> Iterations:
        again = np.sort(np.concatenate([np.arange(ran.count), np.arange(0, ran.count, every)]))
        return replace(ran, begin_s=ran.begin_s[again], took_s=ran.took_s[again], clock_mhz=ran.clock_mhz[again])

    verdict = judge(_run(work, variant).reporting(change))
    assert verdict.status.value == "flagged"
    assert _bound(verdict, "throughput") >= 1 / every


@pytest.mark.parametrize(("work", "factor"), [("softmax", 1.15), ("gemm", 1.4), ("fp32 gemm", 3.0), ("small launches", 2.5)])
def test_inflated_times_are_bounded(work: str, factor: float) -> None:
    """Times that include other calls' work are rejected, or flagged with a bound that covers the excess."""
    verdict = judge(_run(work).reporting(lambda ran: replace(ran, took_s=ran.took_s * factor)))
    assert verdict.status.value in ("flagged", "rejected")
    assert verdict.status.value == "rejected" or _bound(verdict, "mean") >= factor - 1


@pytest.mark.parametrize("there", ["fp32 gemm", "softmax", "decoding"])
@pytest.mark.parametrize("here", ["large gemm", "convolution"])
def test_stamps_of_a_faster_gpu_are_found(here: str, there: str) -> None:
    """Stamps of uncapped work in a window of capped work raise ``impossible-time``."""
    evidence = replace(_run(here, Variant.STAMPED).evidence(), timings=_run(there, Variant.STAMPED, seed=12).evidence().timings)
    assert any(each.rule == "impossible-time" for each in judge(evidence).hazards)


@pytest.mark.parametrize(("share", "quick"), [(0.25, 0.1), (0.8, 0.3), (0.5, 0.7)])
@pytest.mark.parametrize("work", ["attention", "decoding"])
def test_early_returning_calls_bound_the_mean(work: str, share: float, quick: float) -> None:
    whole = share * quick + 1 - share
    faster = replace(WORK[work], kernel=replace(WORK[work].kernel, time_s=WORK[work].kernel.time_s * whole))

    def change(ran: Iterations) -> Iterations:
        is_quick = generator(5, "early").random(ran.count) < share
        took_s = ran.took_s / whole * np.where(is_quick, quick, 1.0)
        gaps_s = np.diff(ran.begin_s) - ran.took_s[:-1]
        begin_s = ran.begin_s[0] + np.concatenate([[0.0], np.cumsum(took_s[:-1] + gaps_s)])
        kept = begin_s + took_s < ran.window_end_s - 1e-4
        return replace(ran, begin_s=begin_s[kept], took_s=took_s[kept], clock_mhz=ran.clock_mhz[kept])

    verdict = judge(act(Setting(work=faster, variant=Variant.TIMES)).reporting(change))
    assert verdict.status.value in ("flagged", "rejected")  # a few slow calls among quick ones count as late
    assert _bound(verdict, "mean") > 0.9 * (1 - whole)


@pytest.mark.parametrize("count", [3, 4, 8, 12])
@pytest.mark.parametrize(("work", "begin_s"), [("softmax", 4.0), ("gemm", 3.0)])
def test_batches_of_less_work_are_bounded(count: int, work: str, begin_s: float) -> None:
    less = [Edit(begin_s=begin_s, end_s=_EVER_S, level="slower", value=0.75)]
    found = act(Setting(work=WORK[work], length_s=5.0, variant=Variant.TIMES, seed=11), less)
    verdict = judge(_batched(found, count))
    assert verdict.status.value in ("flagged", "rejected")
    assert _bound(verdict, "mean") >= abs(found.truth["mean"]) * 0.9


def _batched(found: Act, count: int) -> Evidence:
    """Return the loop in ``count`` entries, each from a first call's start to a last call's end, in a window that ends 0.3 ms later."""
    evidence = found.evidence()
    assert evidence.timings is not None
    each, at_ns = len(evidence.timings.at_ns) // count, evidence.timings.at_ns
    ends_ns = at_ns + np.round(evidence.timings.took_s * 1e9).astype(np.int64)
    begins_ns, ends_ns = at_ns[: each * count : each], ends_ns[each - 1 : each * count : each]
    timings = Timings(begins_ns, (ends_ns - begins_ns) / 1e9 / each, None, each)
    return replace(evidence, window=replace(evidence.window, end_ns=int(ends_ns[-1]) + 300_000), timings=timings)


@pytest.mark.parametrize("count", [3, 4, 8, 12, 40])
@pytest.mark.parametrize("work", ["softmax", "gemm", "attention", "fp32 gemm", "training", "decoding"])
def test_batches_of_equal_work_are_valid(count: int, work: str) -> None:
    verdict = judge(_batched(_run(work, length_s=5.2), count))
    assert verdict.status.value == "valid", str(verdict)


def _as_on_an_h200(evidence: Evidence) -> Evidence:
    """Return the evidence with readings like an H200's for copies from the host, which draw 128 W (docs/RULE_TABLE.md)."""
    for name, value in {"utilization_ratio": 1.0, "mem_utilization_ratio": 0.01, "sm_activity_ratio": 0.0}.items():
        evidence = column(evidence, name, lambda at_ns, old, v=value: np.full_like(old, v))  # type: ignore[misc]
    power = evidence.trace.dense_power
    resting = Column(power.at_ns, np.full_like(power.values, 128.3))
    evidence = replace(evidence, trace=replace(evidence.trace, dense_power=resting))
    for name in ("power_w", "power_average_w"):
        evidence = column(evidence, name, lambda at_ns, old: np.full_like(old, 128.3))
    return column(evidence, "energy_j", lambda at_ns, old: np.asarray(1e4 + 128.3 * at_ns / 1e9, np.float64))


def test_host_copies_with_readings_of_an_h200_are_valid() -> None:
    """Copies from the host are valid: the driver's utilisation counts copies although no kernel runs."""
    copy = replace(WORK["copy"], kernel=replace(WORK["copy"].kernel, time_s=1.22e-3, noise_ratio=0.0008))
    verdict = judge(_as_on_an_h200(act(Setting(work=copy, variant=Variant.TIMES)).evidence()))
    assert verdict.status.value == "valid", str(verdict)


@pytest.mark.parametrize("change", [lambda ran: ran, lambda ran: replace(ran, took_s=ran.took_s * 0.999)])
@pytest.mark.parametrize("work", ["copy", "gemm", "short attention", "training"])
def test_times_that_fill_the_window_are_valid(work: str, change: Callable[[Iterations], Iterations]) -> None:
    """Times without overlap that fill the window, or 99.9 % of it, are valid."""
    for variant in (Variant.TIMES, Variant.DURATIONS, Variant.STAMPED):
        verdict = judge(_run(work, variant).reporting(change))
        assert verdict.status.value == "valid", str(verdict)


@pytest.mark.parametrize(("work", "value"), [("large gemm", 0.3), ("training", 0.35)])
def test_spinning_shows_in_times(work: str, value: float) -> None:
    """An entry with a spinning kernel's wait is late: the window is flagged or rejected although the meters read busy."""
    spinning = [
        Edit(begin_s=begin_s, end_s=begin_s + 0.3, level=level, value=number)
        for begin_s in (1.1, 2.9)
        for level, number in (("slower", 1e6), ("load", value))
    ]
    found = act(Setting(work=WORK[work], variant=Variant.TIMES, length_s=5.0), spinning)
    verdict = judge(found.evidence())
    assert verdict.status.value in ("flagged", "rejected")
    assert _bound(verdict, "throughput") > 0.9 * abs(found.truth["throughput"])


def test_unstamped_times_of_another_gpu_are_valid() -> None:
    """Known limit: raw times do not identify the GPU if both GPUs were equally busy."""
    here, there = _run("gemm"), _run("fp32 gemm", seed=12)
    timings = there.evidence().timings
    assert isinstance(timings, Timings)
    assert judge(replace(here.evidence(), timings=timings)).status.value == "valid"
