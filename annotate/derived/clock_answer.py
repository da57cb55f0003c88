"""The answers of the rules that name the clock's bias by its shape: the one whose shape fits speaks, in words of that shape."""

from collections.abc import Mapping

from annotate.answer import Answer, Clear, Found, Unobserved
from annotate.derived.clock_blocks import ClockBlocks
from annotate.derived.clock_shape import CLOCK_DRIFT, CLOCK_LEVELS, CLOCK_RAMP
from annotate.derived.clock_shift import ClockShift, clock_bounds
from annotate.evidence import Fact

# The words of a rule whose shape the stamps deny: its answer stands only to replace what the driver's clock left open.
_DENIED: Mapping[str, str] = {
    CLOCK_LEVELS: "the stamped clock shows no levels that come and go",
    CLOCK_DRIFT: "the stamped clock shows no drift",
    CLOCK_RAMP: "the stamped clock shows no low start",
}
_HALF = 0.5  # the specification: of the window, of a column that a proof needs
_LEAST_RATIO = 1e-4  # the noise to believe of a clock, and the least tolerance: less is no finding


def answer_clock_shift(blocks: ClockBlocks | None, shift: ClockShift | None, rule: str, absence: str | None) -> Answer:
    """Return the answer of clock-levels, clock-drift or clock-ramp: Clear where another shape fits, or where nothing moved.

    Of stamped clocks that agree with the driver's, every rule is found: its bounds, 0 but for the one whose shape fits,
    replace what the noise of the driver's clock could hide.
    """
    unseen = Unobserved(absence or "the clock of a working GPU was not observed for half of the window")
    if shift is None or blocks is None:
        return unseen
    facts = _facts(shift)
    bounds = clock_bounds(shift, rule)
    if not shift.is_sharper and not any(bound.size_ratio > _LEAST_RATIO for bound in bounds):
        return Clear(facts) if blocks.covered_ratio >= _HALF else unseen
    is_named = rule == shift.rule
    what = _words(shift) if is_named else _DENIED[rule]
    return Found(facts={**facts, "what": what}, span_ns=shift.span_ns if is_named else None, bounds=bounds)


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
    """Return what the clock did, in the words of its shape."""
    begin_mhz, end_mhz = shift.begin_mhz, shift.end_mhz
    if len(shift.levels_mhz) < 2:
        return f"the SM clock kept to one level, {begin_mhz:.0f} MHz, as far as its own swing shows"
    if shift.rule == CLOCK_DRIFT:
        return f"the SM clock drifted by {end_mhz / begin_mhz - 1.0:+.1%}, from {begin_mhz:.0f} to {end_mhz:.0f} MHz"
    if shift.rule == CLOCK_RAMP and shift.span_ns is not None:
        ramp_s = (shift.span_ns[1] - shift.span_ns[0]) / 1e9
        return f"the first {ramp_s:.2g} s ran at {begin_mhz:.0f} MHz before the SM clock rose to {end_mhz:.0f} MHz"
    return f"the SM clock moved between levels, from {shift.levels_mhz[0]:.0f} to {shift.levels_mhz[-1]:.0f} MHz"
