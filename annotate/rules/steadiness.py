"""Rules about one state throughout: only these judge onsets, mixtures and pauses."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from annotate.claims import Claim
from annotate.derived.busy import capped_clock_ratio, duty, is_light, iterations, regular_pause_s, utilization_ratio
from annotate.derived.held import began_ns, power_cap, running
from annotate.derived.onset import OnsetTurn, cap_turn, engaged_ns, last_pause_end_ns
from annotate.derived.sm_clock import median_mhz, sudden, working
from annotate.evidence import Column, Evidence, Fact, Reason
from annotate.ranges import Duration, Share
from annotate.rule import Answer, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule
from annotate.times.durations import readable

# In the first quarter second, where an onset is to be expected (after 56 to 75 ms), times are searched in blocks this fine.
_FINE_NS = 10_000_000
_TAIL_NS = 1_000_000_000
# Where a window holds three swings, their means over three refreshes stay within a step and a third of what counts.
_SWUNG_NS, _SWUNG_RATIO = 3_000_000_000, 4 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RegimeLimits:
    """The limits of ``regime-change``."""

    capped_ratio: Annotated[Share, "a capped second of an H200 reads 0.9 or more of itself"] = 0.9
    free_ratio: Annotated[Share, "a share of time that cannot move a mean by half a per cent"] = 0.02
    step_ratio: Annotated[Share, "as far as the power controller swings the clock by itself"] = 0.03
    settle_s: Annotated[Duration, "a large GPU under dense work settles in three seconds"] = 3.0
    pause_s: Annotated[Duration, "so long a pause sets the timer of the power cap back"] = 0.05
    reject_ratio: Annotated[Share, "with a tenth of the window in another state neither mean nor median is of one"] = 0.1
    note_ratio: Annotated[Share, "no reader cares for a thousandth in the mean"] = 0.001
    busy_ratio: Annotated[Share, "below it pauses explain a cap that comes and goes"] = 0.8


@rule(
    "regime-change",
    kind=RuleKind.BIAS,
    says="{what}",
    remedy="Warm up for 3 s back to back, without a pause before the window.",
)
def regime_change(evidence: Evidence, claim: Claim, *, limits: RegimeLimits) -> Answer:
    """Finds a window in which the GPU went from one state to another: most often, the onset of the power cap.

    Why it matters:
        After a pause an H200 runs a dense kernel some 60 ms at a fast clock, then the power cap makes it 16 % slower.  The
        mean over the first 100 ms is 9 % from the steady one, the median 14 %.  A mixture of two states is the figure of
        neither.

    What it cannot see:
        Without iteration times, a change that neither the cap's time nor the clock shows, and two changes within a second.
        A step of the clock in the first or last 0.3 s, unless it follows a pause.  Whether the input changed: that looks the
        same, and spoils a mean as much.

    Remedy:
        Warm up for three seconds, back to back, with the kernels to be measured, and open the window without a pause (one of
        50 ms sets the cap's timer back); or drop what lies before the change.

    Source:
        Time under the power cap in blocks of a second or more, its error considered; a pause of 50 ms less than 3 s before a
        window that ends capped; a single step of NVML's clock, or of the iteration times, of 3 % and five times their
        scatter, that explains 0.7 of how they deviate; from 3 s on also one of 4 % in the clock's means over three refreshes,
        which explains 0.6.  Measured on an H200, driver 580.159.04: nothing found in 2562 overlapping windows of 0.4 to 2 s of
        copies, gemvs and GEMMs warmed for 3 s, with and without iteration times.  Simulated: none of 3000 clean windows; of
        steps of 6 % without a cap none was missed, of steps of 12 % under it 3.4 %, where without those means it was 18 %.
    """
    held, clock = power_cap(evidence), working(evidence)
    if held is None and not len(clock):
        return Unobserved(evidence.absence or "neither time under the power cap nor the clock was observed for long enough")
    pause_end_ns = _paused(evidence, limits)
    change = (
        cap_turn(evidence, capped_ratio=limits.capped_ratio, free_ratio=limits.free_ratio)
        or (_onset(evidence) if pause_end_ns is not None else None)
        or _by_clock(evidence, clock, limits.step_ratio)
        or _by_timings(evidence, limits.step_ratio)
    )
    if change is not None:
        return _changed(evidence, claim, change, limits)
    if pause_end_ns is not None:
        return _unsettled(evidence, clock, pause_end_ns, limits)
    if held is None:
        return Unobserved("time under the power cap was not observed for long enough")
    if not len(clock):
        mixed = held.least_ratio <= limits.free_ratio and held.most_ratio >= limits.capped_ratio
        short = "the window is too short to tell whether the power cap came or went in it"
        return Unobserved(short if mixed else "the clock was not observed for long enough")
    return Clear({"capped_ratio": held.ratio})


def _changed(evidence: Evidence, claim: Claim, change: OnsetTurn, limits: RegimeLimits) -> Found:
    """Describe a change of state inside the window, and how much of the window it spoils."""
    window, held, clock = evidence.window, power_cap(evidence), working(evidence)
    when_s = (change.at_ns - window.begin_ns) / 1e9
    before_ratio = when_s / window.length_s
    step = _clock_step_ratio(evidence, clock, change)
    # A clock that was faster before the change makes the mean time read too short.
    effect_ratio = before_ratio * step if step is not None and not change.again else None
    by = f", the clock going {step:+.0%}" if step is not None and abs(step) >= 0.005 else ""
    length = f"the window of {readable(window.length_s)}"
    at_begin = f"within {length}" if change.again else f"as {length} began"
    when = f"{readable(when_s)} into {length}" if when_s >= 0.001 else at_begin
    facts: dict[str, Fact] = {
        "what": f"{change.what} {when}{by}",
        "when_s": when_s,
        "before_ratio": before_ratio,
        "capped_ratio": held.ratio if held else None,
        "clock_step_ratio": step,
    }
    utilization = utilization_ratio(evidence)
    # Pauses that let the cap come and go are another rule's hazard, and what this claim means under a burst.
    sparse = claim is Claim.BURST or (utilization is not None and utilization < limits.busy_ratio)
    is_large = min(before_ratio, 1.0 - before_ratio) > limits.reject_ratio
    severity = Severity.REJECT if is_large and not change.again and not sparse else Severity.FLAG
    if effect_ratio is not None and abs(effect_ratio) < limits.note_ratio and window.length_s > 10 * limits.settle_s:
        severity = Severity.NOTE
    return Found(severity, facts, effect_ratio=effect_ratio, span_ns=(window.begin_ns, change.at_ns))


def _paused(evidence: Evidence, limits: RegimeLimits) -> int | None:
    """Return when the pause before a window that ends capped was over, if within the settling time; else None."""
    window = evidence.window
    tail_ns = min(_TAIL_NS, max(window.length_ns // 2, 1))
    held = power_cap(evidence.part(window.end_ns - tail_ns, window.end_ns))
    if held is None or held.ratio <= 0.5:
        return None
    return last_pause_end_ns(evidence, within_s=limits.settle_s, longest_s=limits.pause_s)


def _onset(evidence: Evidence) -> OnsetTurn | None:
    """Find where the cap engaged after the window had begun; None if it already held."""
    window = evidence.window
    on = running(evidence, "power_cap_ns", Reason.SW_POWER_CAP)
    sampled_ns = int(on.at_ns[int(np.argmax(on.values))]) if len(on) and on.values.any() else None
    counted_ns = began_ns(evidence, "power_cap_ns")
    at_ns = counted_ns if counted_ns is not None else sampled_ns
    # A counter that ran this soon after the beginning ran before it: its steps are read by sweeps some 10 ms apart.
    if at_ns is None or at_ns - window.begin_ns <= 20_000_000:
        return None
    return OnsetTurn("after a pause the power cap engaged", min(engaged_ns(evidence, at_ns), window.end_ns))


def _unsettled(evidence: Evidence, clock: Column, pause_end_ns: int, limits: RegimeLimits) -> Found:
    """A window that began capped, but too soon after a pause for a capped clock to have settled."""
    window = evidence.window
    since_s = (window.begin_ns - pause_end_ns) / 1e9
    settled_ns = pause_end_ns + int(limits.settle_s * 1e9)
    rest_ratio = min(1.0, (settled_ns - window.begin_ns) / window.length_ns)
    facts: dict[str, Fact] = {
        "what": f"the window began {since_s:.1f} s after a pause, but a capped clock takes {limits.settle_s:.0f} s to settle",
        "since_s": since_s,
        "before_ratio": rest_ratio,
    }
    # Where the window goes on for long enough, it shows itself whether the clock had settled.
    seen = window.end_ns - settled_ns >= _TAIL_NS
    move_ratio = _move_ratio(clock, settled_ns) if seen else None
    # Clocks this close are one, as far as steps of 15 MHz tell.
    settled = move_ratio is not None and abs(move_ratio) < 0.01
    return Found(
        Severity.NOTE if settled or rest_ratio <= limits.reject_ratio else Severity.FLAG,
        {**facts, "clock_step_ratio": move_ratio},
        effect_ratio=move_ratio * rest_ratio if move_ratio is not None else None,
    )


def _by_clock(evidence: Evidence, clock: Column, step_ratio: float) -> OnsetTurn | None:
    refresh_ns = evidence.trace.refresh_of_ns("sm_clock_mhz")
    move = sudden(clock, block_ns=refresh_ns, least_ratio=_least_ratio(evidence, step_ratio))
    if move is None and evidence.window.length_ns >= _SWUNG_NS:
        # A restless load swings the capped clock so widely that a step shows in means over part of the swing only.
        move = sudden(
            clock,
            block_ns=3 * refresh_ns,
            least_ratio=_SWUNG_RATIO * step_ratio,
            side_count=2,
            deviations=3.0,
            explained_ratio=0.6,
        )
    return OnsetTurn(f"the SM clock {'rose' if move.ratio > 0 else 'fell'}", move.at_ns) if move else None


def _least_ratio(evidence: Evidence, step_ratio: float) -> float:
    """Half of the controller's swing looks like a step in less than two of its periods, of a second each: only what is larger counts."""
    return step_ratio if evidence.window.length_ns >= 2_000_000_000 else 2.0 * step_ratio


def _by_timings(evidence: Evidence, step_ratio: float) -> OnsetTurn | None:
    """A step of the iteration times: fine in the first quarter second, where an onset lies, coarse over the whole window."""
    if evidence.timings is None:
        return None
    window = evidence.window
    times = iterations(evidence.timings, window.begin_ns, window.end_ns)
    head = iterations(evidence.timings, window.begin_ns, min(window.end_ns, window.begin_ns + 250_000_000))
    move = sudden(head, block_ns=_FINE_NS, least_ratio=2.0 * step_ratio, side_count=2)
    if move is None or move.ratio < 0:  # a slow head is a cold start, which is no state of the GPU
        move = sudden(times, block_ns=10 * _FINE_NS, least_ratio=_least_ratio(evidence, step_ratio))
    if move is None:
        return None
    return OnsetTurn(f"the iterations became {abs(move.ratio):.0%} {'longer' if move.ratio > 0 else 'shorter'}", move.at_ns)


def _clock_step_ratio(evidence: Evidence, clock: Column, change: OnsetTurn) -> float | None:
    """Return by how much NVML's clock differs after the change; before the cap's onset the driver asks for the maximum."""
    ratio = _move_ratio(clock, change.at_ns)
    if ratio is None and evidence.device is not None and change.what.endswith("engaged"):
        top_mhz, after_mhz = evidence.device.sm_clock_max_mhz, median_mhz(clock)
        return after_mhz / top_mhz - 1.0 if top_mhz and after_mhz else None
    return ratio


def _move_ratio(clock: Column, at_ns: int) -> float | None:
    """The clock from a time on, over that before; None where one side was not observed."""
    later = clock.at_ns >= at_ns
    before_mhz, after_mhz = (median_mhz(clock.where(side)) for side in (~later, later))
    return after_mhz / before_mhz - 1.0 if before_mhz and after_mhz else None


@rule(
    "bursty-duty-cycle",
    kind=RuleKind.BIAS,
    says="the GPU was busy {busy_ratio:.0%} of the time{bound}",
    remedy="Remove sleeps and synchronisations between launches, or declare claim='burst'.",
)
def bursty_duty_cycle(
    evidence: Evidence,
    claim: Claim,
    *,
    busy_ratio: Annotated[Share, "dense loops on an H200 keep it 87-100 % busy"] = 0.8,
    reject_ratio: Annotated[Share, "idle half of the time, a power-limited body runs at another clock altogether"] = 0.5,
    gap_ratio: Annotated[Share, "of an iteration: longer than launches take"] = 0.05,
    gap_s: Annotated[Duration, "shorter pauses are launch overhead, and do not let the clock recover"] = 0.001,
    power_ratio: Annotated[Share, "easy data was capped at 59 % of the limit; less power than this never was"] = 0.5,
) -> Answer:
    """Finds pauses between launches, in which the GPU recovers and then runs faster than it can keep up.

    Why it matters:
        A 16384-cubed bf16 GEMM with sleeps of 20 to 500 ms between its calls ran 17 % faster on an H200 than back to back,
        at the full clock, with no clock event: a good figure for a burst and a wrong one for throughput.

    What it cannot see:
        Who paused: a benchmark that sleeps, one that waits for the CPU (``cpu-starvation``) and one that only checks its
        results look alike.  Pauses while a neighbour keeps the GPU busy.  What the pauses changed, unless this trace shows
        the capped clock too.

    Remedy:
        Launch back to back, synchronise only at the end, or say that bursts are meant: ``claim='burst'``.

    Source:
        NVML's utilisation, which it refreshes each 208 ms, else the declared busy time, else GPM's SM activity;
        pauses between iterations.  Dense loops read 0.87 to 1.00, the sleeps 0.02 to 0.35.  Work that would draw less than
        half of the power limit without its pauses cannot be capped, so its pauses only make a note.
    """
    busy, by = duty(evidence)
    gaps_s = regular_pause_s(evidence, gap_ratio, gap_s)
    if busy is None and gaps_s is None:
        return Unobserved(evidence.absence or "utilisation was not observed for long enough")
    if busy == 0.0 and gaps_s is None:
        return Unobserved("the GPU did no work that its utilisation would show")
    facts: dict[str, Fact] = {"busy_ratio": busy, "by": by, "gap_s": gaps_s, "bound": ""}
    if busy is None or (busy >= busy_ratio and gaps_s is None):
        return Clear(facts)
    bound_ratio = capped_clock_ratio(evidence)
    effect_ratio = bound_ratio - 1.0 if bound_ratio is not None else None
    if effect_ratio is not None and effect_ratio < -0.005:
        facts["bound"] = f"; back to back its clock was {-effect_ratio:.0%} lower"
    elif gaps_s is not None:
        facts["bound"] = f", with {gaps_s * 1e3:.0f} ms between iterations"
    held = power_cap(evidence)
    capped = effect_ratio is not None or (held is not None and held.least_ratio > 0)
    if claim is not Claim.SUSTAINED or (not capped and is_light(evidence, busy, power_ratio)):
        return Found(Severity.NOTE, facts, effect_ratio=effect_ratio)
    return Found(Severity.REJECT if busy < reject_ratio and capped else Severity.FLAG, facts, effect_ratio=effect_ratio)


RULES: tuple[Rule, ...] = (regime_change, bursty_duty_cycle)
