"""Rules about a steady state: onsets and steps of the clock, and regular pauses of the loop."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from annotate.budget import Number
from annotate.case import Case
from annotate.claims import Claim
from annotate.declared import amount
from annotate.derived.busy import duty
from annotate.derived.busy_share import gauge_share
from annotate.derived.clock_shape import REGIME_CHANGE
from annotate.derived.clock_shift import ClockShift, clock_bounds
from annotate.derived.idle_bounds import (
    counted_regular_ratio,
    duty_bounds,
    is_power_free,
    regular_bounds,
    resting_ratio,
    untold_regular_ratio,
)
from annotate.derived.load_time import STEADY_S
from annotate.derived.onset import cap_turn
from annotate.evidence import Fact
from annotate.ranges import Share
from annotate.rule import Answer, Clear, Found, Rule, RuleKind, Unobserved, rule
from annotate.times.durations import readable

_WARM_UP = "Warm up for 3 s back to back, without a pause before the window."
_STEP = "Find what changed the clock inside the window (a cap, heat, a lock), or quote the number at one clock."
_LEAST_SAID_S = 0.05  # a shorter time prints as "right after"
_LEAST_RATIO = 1e-4  # the least noise of a clock: smaller bounds are not a finding

RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = {
    "regime-change": ("step_ratio", "settle_s", "pause_s", "reject_ratio", "note_ratio", "busy_ratio"),
    "bursty-duty-cycle": ("reject_ratio", "gap_ratio", "gap_s", "power_ratio"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegimeLimits:
    """The limits of ``regime-change``: they choose the words; the bound follows from the clock."""

    capped_ratio: Annotated[Share, "a fully capped second of an H200 reads 0.9 or more"] = 0.9
    free_ratio: Annotated[Share, "a cap for this share of the time changes a mean by less than 0.5 %"] = 0.02


@rule(
    "regime-change",
    kind=RuleKind.BIAS,
    says="{what}",
    remedy="Measure one state only.  {advice}",
)
def regime_change(case: Case, *, limits: RegimeLimits) -> Answer:
    """Finds a window in which the GPU changed its state, most often by the onset of the power cap.

    Why it matters:
        After a pause an H200 runs a dense kernel for about 60 ms at a fast clock, then the power cap makes it 16 % slower.
        The mean over the first 100 ms is 9 % off the steady mean, the median 14 %.  A mixture of two states describes
        neither.

    Limits of detection:
        The steady state, if the window has less than a second after 3 s of load and this work has no record.  The bound is
        then the excess measured on this model, or the whole range of the clock.  Under ``burst`` and ``fixed-clock`` only
        steps count.  Changed inputs: ``iteration-levels`` finds times that change at a constant clock.

    Remedy:
        After a pause: warm up for three seconds, back to back, with the measured kernels, and open the window without a
        pause.  After a step: find what changed the clock, or drop the part before the change.

    Source:
        The stamped clock of the entries, else NVML's while the GPU worked, against its own levels and against the part of
        the window after 3 s of load.  ``docs/RULE_TABLE.md``, section 4.3, has the figures.  Time under the power cap in
        up to 300 blocks determines the wording.
    """
    shift = case.clock_shift
    if shift is None:
        return Unobserved(case.evidence.absence or "the clock of a working GPU was not observed")
    facts: dict[str, Fact] = {
        "levels_count": len(shift.levels_mhz),
        "bound_ratio": shift.bound_ratio,
        "steady_by": shift.steady_by,
    }
    bounds = clock_bounds(shift, REGIME_CHANGE)
    if shift.rule != REGIME_CHANGE:
        return Clear(facts)
    # With stamps a steady clock is Found too: its bounds replace the driver's uncertainty of an earlier pass.
    if not shift.is_sharper and not any(bound.size_ratio > _LEAST_RATIO for bound in bounds):
        return Clear(facts)
    what, advice, span_ns = _change(case, shift, limits)
    return Found(
        facts=facts | {"what": what, "advice": advice},
        effect_ratio=shift.shifts[Number.MEAN].estimate.value_ratio,
        span_ns=span_ns,
        bounds=bounds,
    )


def _change(case: Case, shift: ClockShift, limits: RegimeLimits) -> tuple[str, str, tuple[int, int] | None]:
    """Return description, advice and span (if known) of the change: of the cap, else of the clock, else of the pause before."""
    window = case.evidence.window
    turn = cap_turn(case.evidence, capped_ratio=limits.capped_ratio, free_ratio=limits.free_ratio)
    moved = _moved(case, shift)
    by = f": {moved}" if moved else ""
    if turn is not None:
        when_s = (turn.at_ns - window.begin_ns) / 1e9
        length = f"the window of {readable(window.length_s)}"
        when = f"within {length}" if turn.again else f"{readable(max(when_s, 0.0))} into {length}"
        advice = _WARM_UP if when_s < STEADY_S and not turn.again else _STEP
        return f"{turn.what} {when}{by}", advice, (window.begin_ns, max(turn.at_ns, window.begin_ns))
    since_s = (window.begin_ns - int(case.load.began_ns[0])) / 1e9
    is_fresh = case.claim is Claim.SUSTAINED and since_s < STEADY_S
    if moved:
        return moved, _WARM_UP if is_fresh else _STEP, shift.span_ns
    if len(case.load.began_ns) > 1:
        what = f"load paused {len(case.load.began_ns) - 1} times inside the window"
    elif case.load.before_known:
        what = f"the window began {f'{since_s:.1f} s' if since_s >= _LEAST_SAID_S else 'right'} after a pause"
    else:
        what = "the load before the window was not observed"
    return f"{what}, and a capped clock takes {STEADY_S:.0f} s to settle", _WARM_UP, None


def _moved(case: Case, shift: ClockShift) -> str:
    """Return the step of the clock in words, from the first level to the last; empty for a single level."""
    if len(shift.levels_mhz) < 2 or case.blocks is None:
        return ""
    label = np.zeros(int(case.blocks.known.sum()), np.intp)
    for rank, level in enumerate(case.levels):
        label[level.places] = rank
    first, last = shift.levels_mhz[int(label[0])], shift.levels_mhz[int(label[-1])]
    if first == last:
        return f"the SM clock changed between {shift.levels_mhz[0]:.0f} and {shift.levels_mhz[-1]:.0f} MHz"
    return f"the SM clock {'rose' if last > first else 'fell'} from {first:.0f} to {last:.0f} MHz"


@rule(
    "bursty-duty-cycle",
    kind=RuleKind.BIAS,
    says="{what}",
    remedy="Remove sleeps and synchronisations between launches, or declare them: every= or claim='burst'.",
)
def bursty_duty_cycle(
    case: Case,
    *,
    busy_ratio: Annotated[Share, "dense loops on an H200 keep it 87-100 % busy"] = 0.8,
) -> Answer:
    """Finds regular pauses between launches, after which the GPU runs faster than it can sustain.

    Why it matters:
        On an H200 a 16384-cubed bf16 GEMM with sleeps of 20 to 500 ms between calls took 17 % less time than back to back.
        With 500 ms, no clock event shows that.  The time is right for a burst but wrong for throughput.

    Limits of detection:
        The cause of the pauses: sleeps, waits for the CPU and checks of results look alike.  Without times: pauses of a GPU
        that is busy for 80 % or more, or whose utilisation is not known.  Pauses between times without start times in a
        window below a second.

    Remedy:
        Launch back to back, synchronise only at the end, or declare intended pauses: ``claim='burst'``, or ``every=`` with
        the period.

    Source:
        The gaps between timed entries, minus irregular ones (``idle-stretch``) and 1.3 percentage points of error.  Pauses
        raise the clock only if power is near its limit: uncapped and below 90 % in the driver's 20 ms record, they do not
        count.  Otherwise a third of them counts.  For times without start times, pauses are the share that neither the times
        nor utilisation count as work.  Without times, in windows of a second or more, pauses are the share that utilisation
        does not count.  The share must certainly exceed 20 %, and power must be near its limit.  The busy share is NVML's
        utilisation, refreshed each 208 ms, else the declared share, else GPM's SM activity; the last two are quoted only.
    """
    evidence, gaps = case.evidence, case.gaps
    busy, by = duty(evidence)
    if busy is None and gaps is None:
        return Unobserved(evidence.absence or "utilisation was not observed for long enough")
    facts: dict[str, Fact] = {"busy_ratio": busy, "by": by}
    untold = untold_regular_ratio(case.accounts, case.dips) if gaps is None and case.has_times else 0.0
    if untold and case.claim is not Claim.BURST and not is_power_free(evidence, worked_ratio=1.0 - untold):
        what = f"neither the times nor utilisation show work for {untold:.1%} of the window"
        return Found(facts=facts | {"what": what, "counted_ratio": untold}, bounds=regular_bounds(untold))
    if gaps is None:
        if busy is None or not 0.0 < busy < busy_ratio:
            return Clear(facts)
        gauge = gauge_share(case.busy_shares) if case.is_rest_counted else None
        resting = resting_ratio(gauge, case.dips, dense_ratio=busy_ratio)
        is_bound = is_power_free(evidence, worked_ratio=1.0 - resting) is False
        what = f"SM activity was {busy:.0%}" if by == "SM activity" else f"the GPU was busy {busy:.0%} of the time"
        return Found(facts=facts | {"what": what, "resting_ratio": resting}, bounds=regular_bounds(resting) if is_bound else ())
    counted = counted_regular_ratio(gaps)
    facts |= {"regular_ratio": gaps.regular_ratio, "counted_ratio": counted, "gap_s": gaps.usual_s}
    every_s = amount(evidence.declared, "every_s")
    bounds = duty_bounds(evidence, gaps, case.timings, is_burst=case.claim is Claim.BURST, every_s=every_s)
    if not bounds:
        return Clear(facts)
    what = f"regular pauses of the loop take {gaps.regular_ratio:.1%} of the window, usually {readable(gaps.usual_s)} each"
    return Found(facts=facts | {"what": what}, bounds=bounds)


RULES: tuple[Rule, ...] = (regime_change, bursty_duty_cycle)
