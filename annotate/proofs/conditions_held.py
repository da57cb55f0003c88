"""Proof 3, conditions held: clocks, caps, heat, brakes and the link were as claimed, within the bounds."""

from collections.abc import Mapping
from itertools import chain
from math import isfinite
from typing import Annotated

from annotate.answer import Answer, Found, Severity
from annotate.budget import Bound, Figure, Group, Number, Proof, ProofShown, ProofState
from annotate.case import Case
from annotate.claims import Claim
from annotate.derived.clock_shift import clock_bounds
from annotate.derived.condition_bounds import canary_bounds, link_bounds, memory_clock_bounds
from annotate.derived.held import power_cap
from annotate.derived.held_bounds import hw_slowdown_bounds, power_brake_bounds, sync_boost_bounds, thermal_bounds
from annotate.derived.named_clock import named_clock, named_clock_bounds, off_blocks_ratio, throttled_by
from annotate.derived.steady_reference import SteadyBy
from annotate.evidence import Evidence

_HALF = 0.5  # the specification: least share of the window that a needed column must cover
_NEEDS = {
    "power-limited": "time under the power cap",
    "throttle-thermal": "time slowed by heat",
    "throttle-hw-slowdown": "the event reason of hardware slow-downs",
    "throttle-power-brake": "time under the power brake",
}
_SETTINGS = ("setting-changed", "hardware-error")  # integrity rules on which this proof rests
_NO_NAME, _NO_STAMPS = "a named clock (locked_mhz=)", "stamps of the true clock"
LOCK_MISSING = frozenset((_NO_NAME, _NO_STAMPS))  # evidence that the measured process may give instead of a witness
_LEAST_SAID = 0.001  # smaller bounds are printed as this one


def prove(case: Case, found: Mapping[str, Answer]) -> ProofShown:
    """Return the proof of conditions.

    A changed setting or hardware error above a note, or a missed or throttled fixed clock, breaks the proof.  Otherwise
    missing evidence leaves the proof unproven.  Any other deviation leaves the proof shown.
    """
    bounds = condition_bounds(case)
    named = named_clock(case.evidence) if case.claim is Claim.FIXED_CLOCK else None
    broken_by = _broken_by(case, found)
    missing = _missing(case)
    state = ProofState.BROKEN if broken_by else ProofState.UNPROVEN if missing else ProofState.SHOWN
    cap = power_cap(case.evidence)
    worst = max(
        (bound.size_ratio for bound in bounds if bound.number is Number.MEAN and bound.group is Group.CLOCK), default=0.0
    )
    # Without stamps there is no number at one clock: the text on a single level then includes the swing of the clock.
    swing = 0.0 if case.is_stamped or len(case.levels) > 1 else case.clock_swing_ratio or 0.0
    facts: dict[str, Figure] = {
        "clock_bound_ratio": worst if isfinite(worst) else None,  # None: no bound
        "clock_swing_ratio": case.clock_swing_ratio,
        "capped_ratio": cap.ratio if cap is not None else None,
        "stamped": case.is_stamped,
        "steady_by": case.clock_shift.steady_by if case.clock_shift is not None else None,
        "named_mhz": named.mhz if named else None,
        "named_by": named.by if named else None,
    }
    steady = f"clock steady to {100 * max(worst, swing, _LEAST_SAID):.1f} %" if worst < 10.0 else "clock not steady"
    says = f"{steady}, {named.mhz:.0f} MHz {named.by}" if named else steady
    return ProofShown(
        proof=Proof.CONDITIONS,
        state=state,
        says=says if state is ProofState.SHOWN else "",
        missing=missing,
        broken_by=broken_by,
        facts=facts,
    )


def condition_bounds(case: Case) -> tuple[Bound, ...]:
    """Return the bounds of all conditions under the rules' names: those of the rules at their default limits."""
    evidence, beta = case.evidence, case.beta
    found = [
        thermal_bounds(evidence, beta),
        hw_slowdown_bounds(evidence, beta),
        power_brake_bounds(evidence, beta),
        sync_boost_bounds(evidence, beta),
        memory_clock_bounds(evidence),
        link_bounds(evidence),
        canary_bounds(evidence),
    ]
    if case.clock_shift is not None:
        found.append(clock_bounds(case.clock_shift, case.clock_shift.rule))
    if case.claim is Claim.FIXED_CLOCK and case.blocks is not None and (named := named_clock(evidence)) is not None:
        found.append(named_clock_bounds(case.blocks, named.mhz, beta, quoted_mhz=case.one_clock.clock_mhz))
    return tuple(chain.from_iterable(found))


def _missing(case: Case) -> tuple[str, ...]:
    evidence, claim = case.evidence, case.claim
    out: list[str] = []
    if case.blocks is None or case.blocks.covered_ratio < _HALF:
        out.append("the SM clock for half of the window")
    # Some drivers report no memory clock at all.
    memory = evidence.within("mem_clock_mhz")
    if evidence.observes("mem_clock_mhz") and 2 * len(memory.observed) < len(memory):
        out.append("the memory clock for half of the window")
    _, unknown = throttled_by(evidence)
    needed = _NEEDS if claim is not Claim.BURST else {rule: each for rule, each in _NEEDS.items() if rule != "power-limited"}
    out += [words for rule, words in needed.items() if rule in unknown]
    if not _is_limit_read(evidence):
        out.append("the power limit before and after the work")
    steady_by = case.clock_shift.steady_by if case.clock_shift is not None else None
    if steady_by in (SteadyBy.MODEL, SteadyBy.RANGE) and not case.load.before_known:
        out.append("the load before the window, or 3 s of it inside")
    if claim is Claim.FIXED_CLOCK:
        out += [] if named_clock(evidence) else [_NO_NAME]
        out += [] if case.is_stamped else [_NO_STAMPS]
    return tuple(out)


def _broken_by(case: Case, found: Mapping[str, Answer]) -> tuple[str, ...]:
    out = [name for name in _SETTINGS if isinstance(each := found.get(name), Found) and each.severity is not Severity.NOTE]
    if case.claim is not Claim.FIXED_CLOCK:
        return tuple(out)
    named = named_clock(case.evidence)
    if named is not None and case.blocks is not None and off_blocks_ratio(case.blocks, named.mhz) > 0.0:
        out.append("locked-clock-missed")
    return (*out, *throttled_by(case.evidence)[0])


def _is_limit_read(
    evidence: Evidence, *, slack_s: Annotated[float, "the slow lane is read once a second, and when a window opens"] = 1.5
) -> bool:
    at_ns, slack_ns = evidence.trace.column("power_limit_w").observed.at_ns, int(slack_s * 1e9)
    early = (at_ns >= evidence.window.begin_ns - 10 * slack_ns) & (at_ns <= evidence.window.begin_ns + slack_ns)
    late = at_ns >= evidence.window.end_ns - slack_ns
    return len(at_ns) > 1 and bool(early.any() and late.any() and at_ns[late][-1] > at_ns[early][0])
