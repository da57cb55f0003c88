"""Rules about implausible numbers: skipped work, times beyond the GPU's peak, wrong results."""

import math
from typing import Annotated

import numpy as np

from annotate.amount_words import amount_text
from annotate.case import Case
from annotate.claims import Claim
from annotate.declared import amount, text
from annotate.derived.roofline import arithmetic_bound, traffic_bound
from annotate.derived.timed import SEVERAL, elsewhere, loop
from annotate.evidence import Evidence, Fact
from annotate.ranges import Duration, Factor, Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule
from annotate.times.durations import inside, readable

_GAUGED_NS, _FEWEST_READINGS = 1_000_000_000, 3  # in a shorter window the lagging gauge may not show the work's clock


@rule(
    "result-cached",
    kind=RuleKind.INTEGRITY,
    basis=Basis.DECLARED,
    says="{what}",
    remedy="Use other inputs for each call, and check that each call computes.",
)
def result_cached(
    case: Case,
    *,
    done_ratio: Annotated[Share, "of the least busy time: utilisation is right to some percentage points"] = 0.5,
    claimed_ratio: Annotated[Share, "of the loop: less work is within the error of utilisation"] = 0.1,
    idle_ratio: Annotated[Share, "the driver shows 1-2 % for a process that does nothing"] = 0.02,
) -> Answer:
    """Finds calls that skipped their work or returned a cached output.

    Why it matters:
        A call that returns its last output takes no time.  Submissions that cache results have shown 15-fold speed-ups.

    Limits of detection:
        A cached result that is copied, or computed once in several calls.  Work skipped while the GPU does other work.  The
        missing power of skipped work: the same product draws 691 W with random numbers and 415 W with zeros.  Low power
        proves nothing without a record of the work.  A function whose output is constant by design.  All of these, if neither
        work nor output was declared and the host took the times: a busy GPU does not prove that the calls worked.

    Remedy:
        Change the inputs between calls and compare the outputs; ``bench()`` has an option for that.

    Source:
        The harness's declaration that the output stayed the same for changed inputs.  The driver's utilisation over the
        timed loop: far below the least time for the declared operations or bytes, or below 2 % although the times were taken
        on the GPU.  Utilisation counts only if the process uses no other GPU.
    """
    evidence = case.evidence
    unchanged = evidence.declared.get("output_unchanged")
    if unchanged is True:
        return Found(Severity.REJECT, {"what": "the output did not change when the inputs did", "output_unchanged": True})
    timed = loop(evidence)
    if timed is None or timed.utilization_ratio is None or elsewhere(evidence) is not False:
        if unchanged is False:
            return Clear({"output_unchanged": False})
        return Unobserved("changes of the output with the inputs were not declared, and utilisation does not show the work")
    clock_mhz = evidence.device.sm_clock_max_mhz if evidence.device else None
    bounds = (arithmetic_bound(evidence, clock_mhz), traffic_bound(evidence))
    least_s = max((bound.least_s for bound in bounds if bound), default=0.0)
    least_ratio = least_s * timed.calls_count / timed.round_s
    facts: dict[str, Fact] = {
        "utilization_ratio": timed.utilization_ratio,
        "least_ratio": least_ratio,
        "call_s": timed.call_s,
        "output_unchanged": unchanged if isinstance(unchanged, bool) else None,
    }
    busy = f"the GPU worked {timed.utilization_ratio:.0%} of the time"
    # Work above the available time, on a busy GPU, is a fault of the timer or a wrong count.
    if least_ratio >= claimed_ratio and timed.utilization_ratio < done_ratio * min(1.0, least_ratio):
        return Found(Severity.REJECT, facts | {"what": f"{busy}, but the declared work takes at least {least_ratio:.0%} of it"})
    on_gpu = text(evidence.declared, "timer") in ("events", "graph", "stamps") and timed.timed_s > claimed_ratio * timed.span_s
    if on_gpu and timed.utilization_ratio < idle_ratio:
        if case.is_busy_contradicted:
            return Unobserved("utilisation shows an idle GPU, but energy shows a busy one")
        facts["what"] = f"{busy}, but the calls timed on it took {timed.timed_s / timed.span_s:.0%} of it"
        return Found(Severity.REJECT, facts)
    if unchanged is not False and not on_gpu and least_ratio < claimed_ratio:
        return Unobserved("neither changes of the output with the inputs, nor enough work for utilisation, were declared")
    return Clear(facts)


@rule(
    "impossible-time",
    kind=RuleKind.INTEGRITY,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="{what}",
    remedy="Check {check}.",
)
def impossible_time(
    evidence: Evidence,
    claim: Claim,
    *,
    flops_ratio: Annotated[Factor, "of the peak at the true clock, on which SMs agree within 1 %"] = 1.02,
    bytes_ratio: Annotated[Factor, "of the peak at the highest memory clock, which varies slightly by part"] = 1.05,
    edge_s: Annotated[Duration, "an iteration may cross the window's edges by the time of reading clocks"] = 0.005,
    stamped_ratio: Annotated[
        Factor, "of the driver's highest clock: in 223 stamped windows of H200s the highest ratio was 1.000"
    ] = 1.02,
) -> Answer:
    """Finds invalid times, times too short for the declared work, and stamps above the highest clock.

    Why it matters:
        False ten-fold speed-ups have been published: a timer that did not wait, omitted work, a wrong count.  A time beyond
        the peak needs no further proof.  A time that is zero, infinite, longer than its window, or not a number shows that
        the timer is broken.  An SM never runs faster than the clock that the driver sets.  Stamps above that clock were
        taken on another GPU, or the driver's gauge is frozen.

    Limits of detection:
        A wrong time below the peak.  Times of another GPU without stamps, or with a lower clock.  The cause of a time beyond
        the peak.  Algorithms with fewer operations than the textbook's (Winograd, Strassen, causal masks, structured
        sparsity) and emulated float32 or float64 exceed a peak honestly.  Working sets that fit the L2 cache: bytes that can
        stay in the cache are subtracted.  GPUs without a known peak: the answer is then "not observed".

    Remedy:
        Check the formula for operations and bytes, the declared data type, and the synchronisation.

    Source:
        Each time against zero and the window's length; ``record()`` keeps an invalid duration as zero.  The median time of a
        call against its declared operations and bytes.  The peak follows from the operations per SM and clock in NVIDIA's
        white papers, and from the driver's count of cores, bus width and highest memory clock.  The SM clock is the stamped
        clock of the calls, at most the highest.  Most stamps against the driver's highest clock in windows of a second or
        more.
    """
    if none := _no_times(evidence, edge_s):
        return Found(Severity.REJECT, none)
    by_work = _beyond_peak(evidence, flops_ratio, bytes_ratio)
    stamps = _foreign_stamps(evidence, stamped_ratio) if not isinstance(by_work, Found) else None
    return Found(Severity.FLAG, stamps) if stamps else by_work


def _foreign_stamps(evidence: Evidence, most_ratio: float) -> dict[str, Fact] | None:
    """Return the facts about stamps above the highest clock that the driver showed, or None if they fit or are not known."""
    shown = evidence.within("sm_clock_mhz").observed.values
    stamped = inside(evidence).sm_clock_mhz
    if stamped is None or evidence.window.length_ns < _GAUGED_NS or len(shown) < _FEWEST_READINGS:
        return None
    shown_mhz = float(shown.max())
    if 2 * int((stamped > most_ratio * shown_mhz).sum()) <= int(np.isfinite(stamped).sum()):
        return None
    stamped_mhz = float(np.nanmedian(stamped))
    what = f"the stamps show {stamped_mhz:.0f} MHz, but the driver's clock of this GPU never exceeded {shown_mhz:.0f}"
    check = "that the timed work ran on this GPU, and that the driver's clock is not frozen"
    return {"what": what, "check": check, "stamped_mhz": stamped_mhz, "shown_mhz": shown_mhz}


def _beyond_peak(evidence: Evidence, flops_ratio: float, bytes_ratio: float) -> Answer:
    """Compare the median time of a call with the least time of its declared work."""
    timed = loop(evidence)
    if timed is None or evidence.device is None:
        return Unobserved("no times were taken in the window")
    if not (amount(evidence.declared, "call_flops_count") or amount(evidence.declared, "call_bytes")):
        return Unobserved("the operations or bytes of a call were not declared")
    # The calls may run on another GPU, for which this GPU's peak does not hold.
    if elsewhere(evidence):
        return Unobserved(SEVERAL)
    clock_mhz = _clock_mhz(evidence)
    by_declared = {
        "call_flops_count": (arithmetic_bound(evidence, clock_mhz), flops_ratio),
        "call_bytes": (traffic_bound(evidence), bytes_ratio),
    }
    bounds = [(bound, limit_ratio) for bound, limit_ratio in by_declared.values() if bound]
    unweighed = [name for name, (bound, _) in by_declared.items() if amount(evidence.declared, name) and not bound]
    if not bounds:
        return Unobserved("the peak of this GPU is not known")
    bound, limit_ratio = max(bounds, key=lambda each: each[0].least_s / each[1])
    facts: dict[str, Fact] = {
        "call_s": timed.call_s,
        "least_s": bound.least_s,
        "peak_ratio": bound.least_s / timed.call_s,
        "clock_mhz": clock_mhz,
        "claimed": bound.rate(timed.call_s),
        "peak": bound.peak,
    }
    if bound.least_s <= limit_ratio * timed.call_s:
        if unweighed:
            what = "operations" if "call_flops_count" in unweighed else "bytes"
            return Unobserved(f"the peak {what} per second of this GPU are not known")
        return Clear(facts)
    counted = amount_text(bound.amount, bound.unit.partition("/")[0])
    facts |= {
        "what": f"{readable(timed.call_s)} a call would be {facts['claimed']}, but the GPU's peak is {bound.peak}",
        "counted": counted,
        "check": f"the work of a call ({counted}; masks and sparsity reduce it), and that the timer waits for the call",
    }
    return Found(Severity.REJECT, facts, effect_ratio=timed.call_s / bound.least_s - 1)


@rule(
    "semantic-mismatch",
    kind=RuleKind.INTEGRITY,
    basis=Basis.DECLARED,
    says="{what}",
    remedy="Compare the output with a reference (bench: reference=…), fix differences, and declare error and limit.",
)
def semantic_mismatch(evidence: Evidence, claim: Claim) -> Answer:
    """Finds a number with a wrong result, and notes a number of ``bench`` with an unchecked result.

    Why it matters:
        Kernels that compute different results are not comparable: an exclusive scan against an inclusive one was published
        as a 3.21-fold speed-up.

    Limits of detection:
        A wrong reference, a tolerance that does not fit the data type, and errors for untested inputs.

    Remedy:
        Compare the output with a reference, as ``bench(reference=…)`` does before it times the calls.

    Source:
        The declared error against the reference, and the allowed limit.  Without both, a number of ``bench``, which accepts a
        reference, is noted as unverified.
    """
    declared = evidence.declared
    error = declared.get("reference_error_ratio")
    if isinstance(error, float) and not math.isfinite(error):
        return Found(
            Severity.REJECT, {"what": "the output holds NaN or infinity, or its error against the reference is infinite"}
        )
    error_ratio, limit_ratio = amount(declared, "reference_error_ratio"), amount(declared, "reference_limit_ratio")
    if error_ratio is not None and limit_ratio is not None:
        facts: dict[str, Fact] = {"error_ratio": error_ratio, "limit_ratio": limit_ratio}
        if error_ratio <= limit_ratio:
            return Clear(facts)
        facts["what"] = f"the output differs from the reference by {error_ratio:.2g}, but {limit_ratio:.2g} is allowed"
        return Found(Severity.REJECT, facts)
    if error_ratio is not None:
        return Unobserved("the error against the reference was declared, but not its limit")
    if evidence.timings is None:
        return Unobserved("no times were taken, so there is no result to check")
    # Only bench() measures its timer's overhead and accepts a reference: every plain window would get the note otherwise.  A
    # comparison declares its own checks.
    if amount(declared, "timer_overhead_s") is None or text(declared, "design") is not None:
        return Unobserved("no comparison of the result with a reference was declared")
    return Found(Severity.NOTE, {"what": "unverified: the result was not compared with a reference"})


def _no_times(evidence: Evidence, edge_s: float) -> dict[str, Fact] | None:
    """Return the facts about invalid durations, or entries longer than their window, or None if all are possible."""
    timings, window = evidence.timings, evidence.window
    if timings is None or not len(timings.at_ns):
        return None
    none_count, longest_s = int((~timings.timed).sum()), float(np.max(timings.took_s, where=timings.timed, initial=0.0))
    if none_count:
        what = f"{none_count} of {len(timings.at_ns)} times are not valid: zero, infinite, negative, or not a number"
    elif longest_s > window.length_s + edge_s:
        what = f"a window of {readable(window.length_s)} has an iteration of {readable(longest_s)}"
    else:
        return None
    check = "that durations are in seconds, of iterations inside the window, from a timer that waits for the GPU"
    return {"what": what, "check": check, "none_count": none_count, "longest_s": longest_s}


def _clock_mhz(evidence: Evidence) -> float | None:
    """Return the most that the timed calls' clock was, if known: the lower of the median stamp and the board's highest."""
    most_mhz = evidence.device.sm_clock_max_mhz if evidence.device else None
    clocks = inside(evidence).sm_clock_mhz
    known = clocks[np.isfinite(clocks) & (clocks > 0)] if clocks is not None else np.empty(0)
    return min((mhz for mhz in (float(np.median(known)) if len(known) else None, most_mhz) if mhz), default=None)


RULES: tuple[Rule, ...] = (result_cached, impossible_time, semantic_mismatch)
