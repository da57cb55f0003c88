"""Answers of the clock-shape rules: only the rule whose shape fits reports a finding."""

from annotate.answer import Answer, Clear, Found, Unobserved
from annotate.derived.clock_blocks import ClockBlocks
from annotate.derived.clock_shape import CLOCK_DRIFT, CLOCK_RAMP
from annotate.derived.clock_shift import ClockShift, clock_bounds
from annotate.evidence import Fact

_HALF = 0.5  # the specification: a proof needs each column over at least this share of the window
_LEAST_RATIO = 1e-4  # the least noise of a clock, and the least tolerance


def answer_clock_shift(blocks: ClockBlocks | None, shift: ClockShift | None, rule: str, absence: str | None) -> Answer:
    """Return the answer of clock-levels, clock-drift or clock-ramp: Clear if another shape fits or the clock was steady.

    Instead of Clear, the answer is Unobserved if less than half of the window has a clock.

    If stamped clocks agree with the driver's, the rule whose shape fits answers Found even for a steady clock.  Its bounds
    then replace the uncertainty of the driver's clock.
    """
    unseen = Unobserved(absence or "the clock of a busy GPU was observed for less than half of the window")
    if shift is None or blocks is None:
        return unseen
    facts = _facts(shift)
    bounds = clock_bounds(shift, rule)
    if not bounds or not (shift.is_sharper or any(bound.size_ratio > _LEAST_RATIO for bound in bounds)):
        return Clear(facts) if blocks.covered_ratio >= _HALF else unseen
    return Found(facts={**facts, "what": _words(shift)}, span_ns=shift.span_ns, bounds=bounds)


def _facts(shift: ClockShift) -> dict[str, Fact]:
    return {
        "shape": shift.rule,
        "levels_count": len(shift.levels_mhz),
        "lowest_mhz": shift.levels_mhz[0],
        "highest_mhz": shift.levels_mhz[-1],
        "begin_mhz": shift.begin_mhz,
        "end_mhz": shift.end_mhz,
        "bound_ratio": shift.bound_ratio,
        "steady_by": shift.steady_by,
    }


def _words(shift: ClockShift) -> str:
    begin_mhz, end_mhz = shift.begin_mhz, shift.end_mhz
    if len(shift.levels_mhz) < 2:
        return f"the SM clock stayed at {begin_mhz:.0f} MHz"
    if shift.rule == CLOCK_DRIFT:
        return f"the SM clock drifted by {end_mhz / begin_mhz - 1.0:+.1%}, from {begin_mhz:.0f} to {end_mhz:.0f} MHz"
    if shift.rule == CLOCK_RAMP and shift.span_ns is not None:
        ramp_s = (shift.span_ns[1] - shift.span_ns[0]) / 1e9
        return f"the first {ramp_s:.2g} s ran at {begin_mhz:.0f} MHz before the SM clock rose to {end_mhz:.0f} MHz"
    return f"the SM clock changed between levels, from {shift.levels_mhz[0]:.0f} to {shift.levels_mhz[-1]:.0f} MHz"
