"""The specification's windows on idle time and books, simulated or recorded, judged by proofs 1 and 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import Number, ProofState
from annotate.case import Case
from annotate.claims import Claim
from annotate.combine import severity
from annotate.evidence import Evidence, Host, OtherWork, Ownership, Pause, Process, Timings
from annotate.proofs import books
from annotate.rule import Clear, Found, Severity
from tests.annotate.builders import BEGIN_NS, OWN, evidence
from tests.annotate.proofs.idle_and_books import Shown, shown
from tests.examples import share_of
from tests.truth_windows import truth_windows

CALL_S, GAP_S = 2e-3, 8e-6
IDLE_W, WORK_W = 122.0, 566.0
RESTED = {
    "sm_activity_ratio": 0.0,
    "utilization_ratio": 0.0,
    "power_w": IDLE_W,
    "energy_j": lambda t: 1000.0 + IDLE_W * (t + 100),
}
TOLERANCE = 0.01
few = settings(max_examples=share_of(30))
Stall = tuple[float, float]  # begin and length, in seconds of the window


def is_stalled(t: float, stalls: Sequence[Stall]) -> bool:
    return any(begin_s <= t < begin_s + length_s for begin_s, length_s in stalls)


def times(length_s: float, stalls: Sequence[Stall] = (), scale: float = 1.0) -> Timings:
    """Return the times of a loop of 2 ms calls that waits during stalls; ``scale`` multiplies the durations."""
    begins, at_s = [], 20e-6
    for begin_s, stall_s in (*sorted(each for each in stalls if each[0] >= 0.0), (length_s, 0.0)):
        count = max(0, int((begin_s - at_s) / (CALL_S + GAP_S)))
        begins.append(at_s + (CALL_S + GAP_S) * np.arange(count))
        at_s = max(at_s + count * (CALL_S + GAP_S), begin_s) + stall_s
    at_ns = BEGIN_NS + np.round(np.concatenate(begins) * 1e9).astype(np.int64)
    return Timings(at_ns, np.full(len(at_ns), CALL_S * scale))


def stalled(length_s: float, *stalls: Stall, is_timed: bool = True, host: Host | None = None) -> Evidence:
    """Return a window whose GPU is idle during these stalls, by power and utilisation."""

    def busy(t: float) -> float:
        return float(np.mean([not is_stalled(t - 0.208 * part, stalls) for part in np.linspace(0.05, 1.0, 20)]))

    return evidence(
        length_s=length_s,
        signals={
            "power_w": lambda t: IDLE_W if is_stalled(t, stalls) else WORK_W if t > -4.5 else IDLE_W,
            "utilization_ratio": lambda t: round(busy(0.208 * np.floor(t / 0.208)), 2),
        },
        timings=times(length_s, stalls) if is_timed else None,
        host=host,
    )


def made_of(of: Shown, number: Number = Number.THROUGHPUT, tolerance: float = TOLERANCE) -> Severity:
    return severity(of.budget(number), tolerance)


@pytest.mark.parametrize("claim", Claim)
def test_no_work_idle_gpu_is_rejected(claim: Claim) -> None:
    """An idle H200 with a context is rejected under every claim: no witness shows work."""
    found = shown(evidence(length_s=4.0, signals=RESTED), claim)
    assert found.found("no-work").severity is Severity.REJECT
    assert found.work.state is ProofState.BROKEN
    assert found.work.broken_by == ("no-work",)


def test_no_work_short_bursts_are_work_only_if_claimed() -> None:
    """A GPU that is busy for 0.4 % of the time did no work, except under ``burst``."""
    about = evidence(length_s=4.0, signals={**RESTED, "utilization_ratio": lambda t: 0.04 if int(t * 5) % 10 == 0 else 0.0})
    assert shown(about).found("no-work").severity is Severity.REJECT
    assert isinstance(shown(about, Claim.BURST).answers["no-work"], Clear)


def test_idle_stretch_quiet_window_is_valid() -> None:
    """A steady loop has a bound below 0.1 %, and both proofs are shown, with times and without."""
    for is_timed in (True, False):
        found = shown(stalled(4.0, is_timed=is_timed))
        assert found.bound() < 0.001
        assert found.work.state is found.books.state is ProofState.SHOWN
        assert found.work.says == "busy 100 %"
        assert found.books.says == "books balance"


@pytest.mark.parametrize("is_timed", [True, False])
@pytest.mark.parametrize(
    ("length_s", "stall_s", "due"),
    [(4.4, 0.4, Severity.REJECT), (3.0, 0.3, Severity.REJECT), (4.08, 0.2, Severity.FLAG)],
)
def test_idle_stretch_severity_follows_the_stall(length_s: float, stall_s: float, due: Severity, is_timed: bool) -> None:
    """Stalls of 0.4 s in 4.4 s and 0.3 s in 3 s reject; 0.2 s in 4.08 s flags.  The mean is only noted."""
    found = shown(stalled(length_s, (1.7, stall_s), is_timed=is_timed))
    estimate = found.budget().estimate
    assert estimate is not None
    assert (
        estimate.low_ratio <= -stall_s / length_s <= estimate.high_ratio + 1e-3
    )  # a call that did not fit before the stall is lost too
    assert made_of(found) is due
    assert made_of(found, Number.MEAN) is Severity.NOTE


@pytest.mark.parametrize(("tolerance", "due"), [(0.008, Severity.REJECT), (0.012, Severity.FLAG)])
def test_idle_stretch_near_five_tolerances(tolerance: float, due: Severity) -> None:
    """A stall of 4.9 % rejects at a tolerance of 0.8 % and flags at 1.2 %."""
    assert made_of(shown(stalled(4.08, (1.7, 0.2))), tolerance=tolerance) is due


@pytest.mark.parametrize(("stall_s", "due"), [(0.076, Severity.FLAG), (0.13, Severity.FLAG), (0.255, Severity.REJECT)])
def test_idle_stretch_severity_follows_the_length(stall_s: float, due: Severity) -> None:
    assert made_of(shown(stalled(4.0, (2.3, stall_s)))) is due


@pytest.mark.parametrize("pause_s", [0.05, 0.3, 1.5])
def test_pause_before_a_window_is_not_idle_time(pause_s: float) -> None:
    """A pause before the window gives a bound below 0.2 %, although utilisation still shows the pause in the window."""
    found = shown(stalled(4.0, (-pause_s, pause_s - 0.002)))
    assert found.bound() < 0.002
    assert found.work.state is found.books.state is ProofState.SHOWN


def test_collector_of_88_ms_is_named() -> None:
    """A garbage collection of 88 ms in 2.5 s is the named cause of -3.5 % of throughput, and the median has a bound of 0."""
    begin_ns = BEGIN_NS + 1_200_000_000
    pause = Pause(begin_ns + 500_000, begin_ns + 87_500_000, "collector")
    found = shown(replace(stalled(2.5, (1.2, 0.088)), pauses=(pause,)))
    answer = found.found("idle-stretch")
    assert answer.facts["cause"] == "collector"
    assert answer.effect_ratio == pytest.approx(0.0352, abs=0.0015)
    assert made_of(found) is Severity.FLAG
    assert found.bound(Number.MEDIAN) == 0.0


@pytest.mark.parametrize(("wait_s", "cause"), [(0.19, "run-queue"), (0.02, "unknown"), (None, "unknown")])
def test_idle_stretch_without_pauses_uses_the_run_queue(wait_s: float | None, cause: str) -> None:
    host = Host(span_s=4.0, cpu_s=4.0, run_wait_s=wait_s)
    assert shown(stalled(4.0, (1.7, 0.2), host=host)).found("idle-stretch").facts["cause"] == cause


def test_times_a_hundred_times_too_short_are_rejected() -> None:
    """Times that account for 1 % of the busy time are rejected: the mean is 99 % off."""
    about = replace(stalled(4.0), timings=times(4.0, scale=0.01))
    found = shown(about)
    assert made_of(found, Number.MEAN) is made_of(found, Number.MEDIAN) is Severity.REJECT
    assert found.bound(Number.MEAN) == pytest.approx(
        0.99 + 0.33, abs=0.01
    )  # 0.33 for the higher clock that pauses between such times allow
    assert "not accounted for" in found.books.says


def flushed(kinds: tuple[str, ...] = ("flush",)) -> Evidence:
    """Return a window of a loop that times half of every 4 ms, and flushes in the other half."""
    at_ns = BEGIN_NS + np.arange(1000, dtype=np.int64) * 4_000_000
    other = OtherWork(at_ns + 2_000_000, np.full(1000, 1.98e-3), kinds * 1000)
    return replace(stalled(4.0), timings=Timings(at_ns, np.full(1000, 2e-3)), other_work=other)


def test_books_close_with_declared_other_work() -> None:
    """A declared flush of half of the window balances the books; without the declaration, the mean is rejected."""
    declared, silent = shown(flushed()), shown(replace(flushed(), other_work=None))
    assert declared.bound(Number.MEAN) == 0.0
    assert declared.books.says == "books balance with flush 49.5 %"
    assert silent.bound(Number.MEAN) == pytest.approx(0.5 + 0.16, abs=0.04)  # 0.16 for the higher clock that the pauses allow
    assert made_of(silent, Number.MEAN) is Severity.REJECT


def test_declared_work_does_not_hide_idle_time() -> None:
    """A stall declared as other work is still rejected, because power shows the idle time."""
    about = stalled(4.0, (1.7, 0.4))
    other = OtherWork(np.array([BEGIN_NS + 1_700_000_000]), np.array([0.4]), ("check",))
    found = shown(replace(about, other_work=other))
    assert found.bound() >= 0.1
    assert made_of(found) is Severity.REJECT


@few
@given(
    first_s=st.floats(0.3, 1.5),
    first_length_s=st.floats(0.0, 0.3),
    second_s=st.floats(2.0, 3.2),
    second_length_s=st.floats(0.005, 0.4),
    is_timed=st.booleans(),
)
def test_adding_a_stall_never_lowers_the_bound(
    first_s: float, first_length_s: float, second_s: float, second_length_s: float, is_timed: bool
) -> None:
    """A further stall never lowers the bound of throughput, apart from errors at the edges."""
    before = stalled(4.0, (first_s, first_length_s), is_timed=is_timed)
    after = stalled(4.0, (first_s, first_length_s), (second_s, second_length_s), is_timed=is_timed)
    assert shown(after).bound() >= shown(before).bound() - 2e-5


@few
@given(
    begin_s=st.floats(0.0, 3.8),
    took_s=st.floats(1e-3, 2.0),
    stall_s=st.floats(0.1, 0.4),
    scale=st.sampled_from([1.0, 0.5, 0.01]),
)
def test_declared_work_explains_only_busy_time_outside(begin_s: float, took_s: float, stall_s: float, scale: float) -> None:
    """Declared other work never lowers the witnessed part of a stall, and explains no busy time inside entries."""
    about = replace(stalled(4.0, (1.7, stall_s)), timings=times(4.0, [(1.7, stall_s)], scale))
    other = OtherWork(np.array([BEGIN_NS + round(begin_s * 1e9)]), np.array([took_s]), ("check",))
    alone, beside = shown(about), shown(replace(about, other_work=other))
    witnessed = shown(replace(about, timings=None))
    assert beside.bound() >= sum(each.seen_ratio or 0.0 for each in witnessed.causes) - 1e-9
    if scale == 1.0:  # entries fill the window except for the stall, so declared work can explain nothing
        assert beside.bound(Number.MEAN) >= alone.bound(Number.MEAN) - 1e-9
    explained = alone.bound(Number.MEAN) - beside.bound(Number.MEAN)
    assert explained <= took_s / 4.0 / (scale * 0.9) + 0.02


@pytest.mark.parametrize(
    ("name", "least"),
    [("stall-0.1-gemm4k", 0.03), ("stall-0.3-softmax", 0.1), ("stall-0.3-decode-plain", 0.09), ("litter-att", 0.6)],
)
def test_recorded_stalls_are_bounded(name: str, least: float) -> None:
    """In recorded windows a stall of 0.1 s flags, and 0.3 s in 3 s or garbage collections reject."""
    found = shown(truth_windows()[name].disturbed)
    assert found.bound() >= least
    assert made_of(found) is (Severity.FLAG if least < 0.05 else Severity.REJECT)


@pytest.mark.parametrize("name", ["pause-0.7-att", "pause-3-gemm4k", "pause-0.7-softmax"])
def test_recorded_pauses_before_windows_are_clear(name: str) -> None:
    found = shown(truth_windows()[name].disturbed)
    assert found.bound() < 0.002
    assert found.bound(Number.MEAN) < 0.0005


def test_work_seen_needs_a_witness_of_the_owner() -> None:
    """Without process lists the owner of the work is missing, and without any witness the work itself."""
    unlisted = shown(evidence(length_s=4.0, processes=None))
    assert unlisted.work.state is ProofState.UNPROVEN
    assert unlisted.work.missing[0].startswith("the owner of the work")
    silent = dict.fromkeys(("sm_activity_ratio", "utilization_ratio", "energy_j", "power_w"))
    nobody = shown(evidence(length_s=4.0, signals=silent, processes=None))
    assert nobody.work.missing[0] == "a witness of the GPU's work"


def test_work_seen_with_a_neighbour_by_process_utilisation() -> None:
    """With a listed neighbour, the utilisation of the window's process shows its work."""
    neighbour = Process(pid=77, name="other", utilization_ratio=0.1, memory_bytes=10**9, ownership=Ownership.FOREIGN)
    found = shown(evidence(length_s=4.0, processes=(replace(OWN, utilization_ratio=0.85), neighbour)))
    assert found.work.state is ProofState.SHOWN
    assert found.work.facts["witness"] == "process utilisation"


def test_books_need_a_second_of_utilisation() -> None:
    short = stalled(0.8)
    assert shown(short).books.state is ProofState.UNPROVEN
    assert shown(short).books.missing == ("a window of a second or more (this one lasts 800 ms)",)


def test_books_are_broken_by_integrity_rules() -> None:
    """A finding of an integrity rule breaks the books, and a note does not."""
    case = Case(stalled(4.0))
    assert books.prove(case, {"wrong-stream": Found(Severity.REJECT)}).broken_by == ("wrong-stream",)
    assert books.prove(case, {"missing-sync": Found(Severity.NOTE)}).state is ProofState.SHOWN
