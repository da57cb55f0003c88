"""The rule about code that may cheat: the witness's evidence bounds the claimed number."""

from typing import Annotated

from annotate.amount_words import amount_text
from annotate.case import Case
from annotate.derived.claimed_work import (
    ClaimedCalls,
    WitnessedWork,
    is_nonsense,
    is_untrusted,
    least_call_s,
    list_claims,
    witnessed_work,
    works_after_end,
)
from annotate.evidence import Fact
from annotate.ranges import Duration, Factor, Share
from annotate.rule import Answer, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule
from annotate.times.durations import readable


@rule(
    "claimed-work",
    kind=RuleKind.INTEGRITY,
    says="untrusted code: {what}",
    remedy="Claim only work that the evidence confirms.  {advice}",
)
def claimed_work(
    case: Case,
    *,
    off_ratio: Annotated[Share, "five tolerances, as for estimates: a number farther off is rejected"] = 0.05,
    bounded_ratio: Annotated[Share, "of the claimed time: wider bounds of the witness do not show the number"] = 0.15,
    launch_s: Annotated[Duration, "the time that a launch adds to a call timed by events or the host"] = 8e-6,
    peak_ratio: Annotated[Factor, "of the peak: its clock and the witness err by some percent"] = 1.05,
    power_ratio: Annotated[
        Share, "of the limit, during the least time: products of zeros, the cheapest measured on an H200, drew 0.51"
    ] = 0.25,
    rest_ratio: Annotated[
        Share, "of the power between rest and limit, while busy: one spinning thread on an H200 drew 0.02"
    ] = 0.05,
) -> Answer:
    """Finds a number of untrusted code that the GPU's busy time, energy or peak contradicts.

    Why it matters:
        Code that is rewarded for speed has replaced timers, returned cached results, hidden work from the timer, and claimed
        calls that never ran.  Each of these has led a public ranking.

    Limits of detection:
        A wrong result, and other work in place of the measured work.  Copying a cached result is work too: only a check of
        the output for other inputs finds it.  Without stated work, a spinning kernel in place of the calls, and a count
        and a time that are wrong by the same factor.  Work done before the window.

    Remedy:
        Open the window around the timed calls only, count all calls in it, state the work of a call, change the inputs.

    Source:
        Claimed calls times the claimed time per call, by the mean and the median if times are given.  Both are compared with
        the driver's utilisation over a second or more and the power drawn meanwhile.  Stated operations and bytes are
        compared with the peak and the energy above rest.  The power record shows work after the window's end.
    """
    evidence = case.evidence
    if not is_untrusted(evidence):
        return Clear({"untrusted": False})
    claims = list_claims(evidence)
    if is_nonsense(evidence):
        return Unobserved("the claimed number is invalid: expected a positive count of calls and the time of one, in seconds")
    if not claims:
        return Found(
            Severity.NOTE, {"what": "no number was claimed", "advice": "Claim calls and their time to have them checked."}
        )
    seen = None if case.is_busy_contradicted else witnessed_work(evidence, case.busy_shares, case.idle_w)
    if seen is None:
        return Unobserved("the claimed number has no bounds: no utilisation over a second or more shows the GPU's work")
    stated_s = least_call_s(evidence)
    facts = _facts(claims[0], seen, stated_s)
    if (beyond := _beyond_peak(claims[0], seen, stated_s, peak_ratio)) or (
        beyond := _too_little_energy(case, claims[0], seen, stated_s, power_ratio)
    ):
        advice = "Check that every call computes, and check the stated work."
        return Found(Severity.REJECT, facts | {"what": beyond, "advice": advice})
    held = [_held(claim, seen, off_ratio, bounded_ratio, launch_s) for claim in claims]
    severity, what = max(held, key=lambda each: list(Severity).index(each[0]))
    advice = "Time every call that runs in the window, on the stream it runs on, and claim no other."
    if severity is Severity.NOTE and seen.power_ratio is not None and seen.power_ratio < rest_ratio:
        severity, what = (
            Severity.FLAG,
            f"{what}; but it drew {seen.power_ratio:.1%} of the power between rest and limit meanwhile",
        )
        advice = "State the work of a call: busy time with so little power may be a spinning thread."
    if severity is not Severity.REJECT and works_after_end(evidence, case.idle_w):
        severity, what = Severity.FLAG, f"the GPU worked on after the window's end; {what}"
        advice = "Wait for all work before the end, and leave the GPU at rest for 0.4 s after the window."
    return Found(severity, facts | {"what": what, "advice": advice})


def _held(
    claim: ClaimedCalls, seen: WitnessedWork, off_ratio: float, bounded_ratio: float, launch_s: float
) -> tuple[Severity, str]:
    """Compare one claimed number with the busy time, and return the severity and a description."""
    least, most = readable(seen.least_s / claim.count), readable(seen.most_s / claim.count)
    if claim.together_s is None:
        return Severity.NOTE, f"{claim.count} calls are claimed, and the GPU worked for {least} to {most} each"
    claimed = f"{claim.count} calls of {readable(claim.call_s)} are claimed"
    if claim.together_s < seen.least_s:
        is_far = seen.least_s > (1.0 + off_ratio) * claim.together_s
        return Severity.REJECT if is_far else Severity.FLAG, f"{claimed}, and the GPU worked for at least {least} each"
    if claim.together_s > seen.most_s:
        is_launching = claim.together_s <= seen.most_s + claim.count * launch_s
        words = f"{claimed}, and the GPU worked for at most {most} each"
        return (Severity.FLAG, f"{words}; the rest may be launching") if is_launching else (Severity.REJECT, words)
    off = max(seen.most_s / claim.together_s - 1.0, 1.0 - seen.least_s / claim.together_s)
    words = f"{claimed}, and the GPU worked for {least} to {most} each"
    if off > bounded_ratio:
        return Severity.FLAG, f"{words}, which bounds them only to {off:.0%}"
    return Severity.NOTE, f"{words}: right to {off:.1%}"


def _beyond_peak(claim: ClaimedCalls, seen: WitnessedWork, stated_s: float | None, peak_ratio: float) -> str:
    """Return the contradiction of the stated work by the busy time or the claimed time; empty if there is none."""
    if stated_s is None:
        return ""
    stated = f"a call of the stated work takes at least {readable(stated_s)}"
    if stated_s * claim.count > peak_ratio * seen.most_s:
        return (
            f"{stated}, and for {claim.count} claimed calls the GPU worked at most {readable(seen.most_s / claim.count)} each"
        )
    if claim.together_s is not None and stated_s > peak_ratio * claim.call_s:
        return f"{stated}, and {readable(claim.call_s)} are claimed"
    return ""


def _too_little_energy(case: Case, claim: ClaimedCalls, seen: WitnessedWork, stated_s: float | None, power_ratio: float) -> str:
    """Return the contradiction of the stated work by the energy that the GPU drew; empty if there is none."""
    limit_w = case.evidence.device.power_limit_w if case.evidence.device is not None else None
    if stated_s is None or seen.energy_j is None or limit_w is None:
        return ""
    least_j = power_ratio * limit_w * stated_s * claim.count
    if seen.energy_j >= least_j:
        return ""
    return (
        f"{claim.count} claimed calls of the stated work need at least {amount_text(least_j, 'J')}, "
        f"but the GPU drew {amount_text(seen.energy_j, 'J')}"
    )


def _facts(claim: ClaimedCalls, seen: WitnessedWork, stated_s: float | None) -> dict[str, Fact]:
    return {
        "claimed_calls_count": claim.count,
        "claimed_call_s": claim.call_s if claim.together_s is not None else None,
        "least_call_s": seen.least_s / claim.count,
        "most_call_s": seen.most_s / claim.count,
        "busy_power_ratio": seen.power_ratio,
        "call_energy_j": seen.energy_j / claim.count if seen.energy_j is not None else None,
        "stated_call_s": stated_s,
    }


RULES: tuple[Rule, ...] = (claimed_work,)
