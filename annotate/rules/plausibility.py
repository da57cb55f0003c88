"""Can the number be true?  Work not done, faster than the GPU can, or not the work that was meant."""

import math
from typing import Annotated

import numpy as np

from annotate.case import Case
from annotate.claims import Claim
from annotate.declared import amount, text
from annotate.derived.roofline import arithmetic_bound, readable_rate, traffic_bound
from annotate.derived.timed import SEVERAL, elsewhere, loop
from annotate.evidence import Evidence, Fact
from annotate.ranges import Duration, Factor, Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule
from annotate.times.durations import inside, readable

_GAUGED_NS, _FEWEST_READINGS = 1_000_000_000, 3  # in less, a gauge that lags may not have shown the clock of the work


@rule(
    "result-cached",
    kind=RuleKind.INTEGRITY,
    basis=Basis.DECLARED,
    says="{what}",
    remedy="Give each call other inputs, and see that it computes.",
)
def result_cached(
    case: Case,
    *,
    done_ratio: Annotated[
        Share, "of the least busy time; utilisation is right to some points, and clocks are above none"
    ] = 0.5,
    claimed_ratio: Annotated[Share, "of the loop: less work than this hides in what utilisation leaves unsaid"] = 0.1,
    idle_ratio: Annotated[Share, "the driver shows 1-2 % for a process that does nothing"] = 0.02,
) -> Answer:
    """Finds calls that skipped their work or returned a kept output.

    Why it matters:
        A call that returns its last output takes no time; submissions that memoise have shown 15-fold speed-ups.

    What it cannot see:
        A cached result that is copied, or computed once in several calls.  Work skipped while the GPU does other work.  The
        power that the skipped work should draw: the same product takes 691 W of random numbers and 415 W of zeros, so low
        power proves nothing without a record of the work.  A function whose output is constant by design.  Anything, if
        neither the work nor the output was declared and the host took the times: a busy GPU proves no call's work.

    Remedy:
        Change the inputs between calls and compare the outputs, as ``bench()`` does when told to.

    Source:
        Whether the output stayed the same when the inputs were changed, as the harness declared.  And the driver's utilisation
        over the timed loop: far below the least time the GPU needs for the declared operations or bytes, or none at all
        where the times were taken on the GPU; only where the process uses this GPU alone.
    """
    evidence = case.evidence
    unchanged = evidence.declared.get("output_unchanged")
    if unchanged is True:
        return Found(Severity.REJECT, {"what": "the output did not change when the inputs did", "output_unchanged": True})
    timed = loop(evidence)
    if timed is None or timed.utilization_ratio is None or elsewhere(evidence) is not False:
        if unchanged is False:
            return Clear({"output_unchanged": False})
        return Unobserved("whether the output follows the inputs was not declared, nor does utilisation show it")
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
    # Work that takes more than all the time there was is a timer's fault, or a wrong count, while the GPU is busy.
    if least_ratio >= claimed_ratio and timed.utilization_ratio < done_ratio * min(1.0, least_ratio):
        return Found(
            Severity.REJECT, facts | {"what": f"{busy}, while the declared work takes {least_ratio:.0%} of it at least"}
        )
    on_gpu = text(evidence.declared, "timer") in ("events", "graph", "stamps") and timed.timed_s > claimed_ratio * timed.span_s
    if on_gpu and timed.utilization_ratio < idle_ratio:
        if case.is_busy_contradicted:
            return Unobserved("utilisation shows a GPU at rest, and energy one that worked")
        facts["what"] = f"{busy}, while the calls timed on it took {timed.timed_s / timed.span_s:.0%} of it"
        return Found(Severity.REJECT, facts)
    if unchanged is not False and not on_gpu and least_ratio < claimed_ratio:
        return Unobserved("neither whether the output follows the inputs, nor work that utilisation would show, was declared")
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
    flops_ratio: Annotated[Factor, "of the peak at the true clock, which SMs agree on within 1 %"] = 1.02,
    bytes_ratio: Annotated[Factor, "of the peak at the highest memory clock, whose last digits vary by part"] = 1.05,
    edge_s: Annotated[
        Duration, "an iteration may begin and end beside the window's edges by what reading clocks takes"
    ] = 0.005,
    stamped_ratio: Annotated[
        Factor, "of the driver's highest clock: 223 stamped windows of H200s reach 1.000, as a gauge shows what was asked for"
    ] = 1.02,
) -> Answer:
    """Finds times that no iteration can take on this GPU, and times in which it could not have done the declared work.

    Why it matters:
        False ten-fold speed-ups have been published: a timer that did not wait, work left out, a wrong count.  A time
        beyond the peak needs no further proof.  A time of zero, of infinity, longer than its window, or handed over as text
        shows that the timer is broken.  An SM never runs faster than the clock the driver asks for, so stamps above it were
        taken on another GPU, or the driver's gauge stands still.

    What it cannot see:
        A wrong time below the peak.  Times of another GPU without stamps, or of one whose clock is lower than this one's.
        The wrong one of time and count: algorithms that need fewer operations than the textbook's (Winograd, Strassen,
        causal masks, structured sparsity), and emulated float32 or float64, beat a peak honestly.  Bytes that stay in the
        L2 cache from call to call are taken off, so a working set that fits it is never impossible.  GPUs not in the table
        of ``roofline``: what was declared and has no known peak is said to be unobserved, unless the other of operations
        and bytes is impossible already.

    Remedy:
        Check the formula that counts operations and bytes, the declared data type, and the synchronisation.

    Source:
        Each time beside zero and beside the window; ``record()`` keeps the place of what is no duration.  The median time
        of a call; operations and bytes of a call as declared; operations an SM does each clock from NVIDIA's
        white papers, the number of cores, the width of the memory bus and its highest clock from the driver; the true clock
        of the calls where it was stamped, else the highest.  The median stamped clock beside the driver's highest in a window
        of a second and more.
    """
    if none := _no_times(evidence, edge_s):
        return Found(Severity.REJECT, none)
    by_work = _beyond_peak(evidence, flops_ratio, bytes_ratio)
    stamps = _foreign_stamps(evidence, stamped_ratio) if not isinstance(by_work, Found) else None
    return Found(Severity.FLAG, stamps) if stamps else by_work


def _foreign_stamps(evidence: Evidence, most_ratio: float) -> dict[str, Fact] | None:
    """Return what is said of stamps above the highest clock that the driver showed; None where they fit or are not known."""
    shown = evidence.within("sm_clock_mhz").observed.values
    stamped = inside(evidence).sm_clock_mhz
    if stamped is None or evidence.window.length_ns < _GAUGED_NS or len(shown) < _FEWEST_READINGS:
        return None
    shown_mhz = float(shown.max())
    if 2 * int((stamped > most_ratio * shown_mhz).sum()) <= int(np.isfinite(stamped).sum()):
        return None
    stamped_mhz = float(np.nanmedian(stamped))
    what = f"the stamps show {stamped_mhz:.0f} MHz, and the driver's clock of this GPU never exceeded {shown_mhz:.0f}"
    check = "that this GPU ran what was timed, and that the driver's clock is no frozen reading"
    return {"what": what, "check": check, "stamped_mhz": stamped_mhz, "shown_mhz": shown_mhz}


def _beyond_peak(evidence: Evidence, flops_ratio: float, bytes_ratio: float) -> Answer:
    """Hold the median time of a call against the least that its declared work takes."""
    timed = loop(evidence)
    if timed is None or evidence.device is None:
        return Unobserved("no times were taken in the window")
    if not (amount(evidence.declared, "call_flops_count") or amount(evidence.declared, "call_bytes")):
        return Unobserved("nobody declared how many operations or bytes a call takes")
    # A call may run on another GPU than this one, and then this one's peak is not its.
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
        return Unobserved("what this GPU can do at most is not known")
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
            return Unobserved(f"how many {what} a second this GPU can do at most is not known")
        return Clear(facts)
    counted = readable_rate(bound.amount, bound.unit.partition("/")[0])
    facts |= {
        "what": f"{readable(timed.call_s)} a call would be {facts['claimed']}, but the GPU does {bound.peak} at most",
        "counted": counted,
        "check": f"what a call does ({counted}; masks and sparsity do less), and whether the timer waits for it",
    }
    return Found(Severity.REJECT, facts, effect_ratio=timed.call_s / bound.least_s - 1)


@rule(
    "semantic-mismatch",
    kind=RuleKind.INTEGRITY,
    basis=Basis.DECLARED,
    says="{what}",
    remedy="Compare the output with a reference (bench: reference=…), correct what differs, and declare error and limit.",
)
def semantic_mismatch(evidence: Evidence, claim: Claim) -> Answer:
    """Finds a number whose result is wrong, and notes one of `bench` whose result nobody checked.

    Why it matters:
        Two kernels that compute different things are no comparison: an exclusive scan against an inclusive one was
        published as a 3.21-fold speed-up.

    What it cannot see:
        A wrong reference, a tolerance that does not fit the data type, and errors in inputs that were not tried.

    Remedy:
        Compare the output with a reference, as ``bench(reference=…)`` does before any time counts.

    Source:
        The declared error against the reference and the limit allowed.  Without them a number of ``bench``,
        which takes a reference, is noted as unverified.
    """
    declared = evidence.declared
    error = declared.get("reference_error_ratio")
    if isinstance(error, float) and not math.isfinite(error):
        return Found(
            Severity.REJECT, {"what": "the output holds NaN or infinity, or differs from the reference beyond measure"}
        )
    error_ratio, limit_ratio = amount(declared, "reference_error_ratio"), amount(declared, "reference_limit_ratio")
    if error_ratio is not None and limit_ratio is not None:
        facts: dict[str, Fact] = {"error_ratio": error_ratio, "limit_ratio": limit_ratio}
        if error_ratio <= limit_ratio:
            return Clear(facts)
        facts["what"] = f"the output differs from the reference by {error_ratio:.2g}, more than the {limit_ratio:.2g} allowed"
        return Found(Severity.REJECT, facts)
    if error_ratio is not None:
        return Unobserved("the error against the reference was declared, how much is allowed was not")
    if evidence.timings is None:
        return Unobserved("no times were taken, so there is no result to check")
    # Only bench() measures its timer around nothing, and only it takes a reference: of a window's own iterations it would be
    # said every time.  A comparison says by itself whether it compared results.
    if amount(declared, "timer_overhead_s") is None or text(declared, "design") is not None:
        return Unobserved("nobody declared whether the result was compared with a reference")
    return Found(Severity.NOTE, {"what": "unverified: the result was not compared with a reference"})


def _no_times(evidence: Evidence, edge_s: float) -> dict[str, Fact] | None:
    """Return what is said of entries that are no durations, or longer than the window they began in; None if all can be."""
    timings, window = evidence.timings, evidence.window
    if timings is None or not len(timings.at_ns):
        return None
    none_count, longest_s = int((~timings.timed).sum()), float(np.max(timings.took_s, where=timings.timed, initial=0.0))
    if none_count:
        what = f"{none_count} of {len(timings.at_ns)} times are no durations: zero, infinite, negative, or no number"
    elif longest_s > window.length_s + edge_s:
        what = f"an iteration of {readable(longest_s)} was handed to a window of {readable(window.length_s)}"
    else:
        return None
    check = "that durations are in seconds, of iterations inside the window, from a timer that waits for the GPU"
    return {"what": what, "check": check, "none_count": none_count, "longest_s": longest_s}


def _clock_mhz(evidence: Evidence) -> float | None:
    """The clock at which the timed calls ran, at most: the true one where it was stamped, never above the highest."""
    most_mhz = evidence.device.sm_clock_max_mhz if evidence.device else None
    clocks = inside(evidence).sm_clock_mhz
    known = clocks[np.isfinite(clocks) & (clocks > 0)] if clocks is not None else np.empty(0)
    return min((mhz for mhz in (float(np.median(known)) if len(known) else None, most_mhz) if mhz), default=None)


RULES: tuple[Rule, ...] = (result_cached, impossible_time, semantic_mismatch)
