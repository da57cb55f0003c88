"""Loops in which the GPU waits for the host to launch work, so that the times measure the host."""

from dataclasses import dataclass, replace
from typing import Annotated

from annotate.answer import Answer, Clear, Found, Unobserved
from annotate.declared import amount
from annotate.derived.launch_share import LaunchShare, claims_kernel, declared_share, has_other_work, waited_s
from annotate.derived.missed_work import NO_UTILISATION
from annotate.derived.time_accounts import GAUGE_ERROR_RATIO
from annotate.derived.timed import SEVERAL, Loop, elsewhere, loop
from annotate.derived.timer_bounds import AROUND_NOTHING_S, timer_bounds
from annotate.evidence import Evidence, Fact
from annotate.ranges import Duration, Factor, Share
from annotate.times.durations import readable

_RULE = "host-bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBoundLimits:
    """The limits of ``host-bound``."""

    fed_ratio: Annotated[Share, "copies and GEMMs of 26 microseconds and more kept an H200 busy 0.88 of the time"] = 0.7
    full_ratio: Annotated[
        Share, "an H200 was busy 0.70 to 0.78 in loops that waited for each call of 27 to 57 µs, 10 to 28 µs apart"
    ] = 0.85
    idle_s: Annotated[Duration, "a launch takes longer than this, so a shorter gap is not a wait"] = 5e-6
    pause_s: Annotated[Duration, "a harness takes tens of microseconds between calls, a sleep takes longer"] = 0.0002
    late_ratio: Annotated[Factor, "a mean this far above the median has late launches: the median decides"] = 1.2
    nothing_ratio: Annotated[Share, "the driver shows 1-2 % for a process that does nothing"] = 0.02
    wait_ratio: Annotated[Share, "threads that waited longer than this lack CPU cores"] = 0.05
    starved_ratio: Annotated[Share, "above half of the readings, the usual reading is the host's launch time"] = 0.5


def waits_for_launches(evidence: Evidence, limits: HostBoundLimits) -> Answer:
    """Find a loop whose usual call leaves the GPU idle, and bound the kernel's time by the GPU's part of the call."""
    timed, share = loop(evidence), declared_share(evidence)
    if timed is None or timed.entries_count < 2:
        return Unobserved("fewer than two times were taken")
    if elsewhere(evidence):
        return Unobserved(SEVERAL)
    facts = _launch_facts(share)
    if share is not None and _is_starved(evidence, timed, share, limits):
        return _starved(timed, share, facts)
    busy_s = timed.call_busy_s
    if busy_s is None or timed.utilization_ratio is None:
        return Unobserved(NO_UTILISATION)
    facts |= {"utilization_ratio": timed.utilization_ratio, "call_s": timed.call_s}
    if timed.utilization_ratio >= limits.full_ratio:
        return Clear(facts)
    gap_s = timed.gap_s()
    facts["gap_s"] = gap_s
    # A few late launches make the mean round longer than the median round.
    usual_s = timed.entry_s + gap_s
    if timed.utilization_ratio >= limits.fed_ratio and not _surely_waits(timed, usual_s, busy_s, limits):
        return Clear(facts)
    late = timed.round_s > limits.late_ratio * usual_s
    # The host paused, or was ahead of the GPU at most calls, or only the late launches left the GPU idle.
    if gap_s > limits.pause_s or gap_s < 0 or (late and busy_s * timed.calls_count >= limits.fed_ratio * usual_s):
        return Clear(facts)
    if timed.utilization_ratio <= limits.nothing_ratio:
        return Unobserved("the GPU did not work at all, so it did not wait for launches")
    host = evidence.host
    if host.run_wait_s and host.span_s and host.run_wait_s > limits.wait_ratio * host.span_s:
        return Unobserved("the benchmark waited for a CPU core, which explains late launches")
    idle_s = (usual_s if late else timed.round_s) / timed.calls_count - busy_s
    if idle_s <= limits.idle_s:
        return Clear(facts)
    if share is not None:
        # A declared fact cannot make the GPU's part larger than the observed one.
        facts |= _launch_facts(replace(share, launch_s=max(share.launch_s, timed.call_s - busy_s)))
    facts |= {
        "what": f"the GPU worked {timed.utilization_ratio:.0%} of the loop",
        "idle_s": idle_s,
        "idle": readable(idle_s),
        "call": readable(timed.call_s),
        "batch_count": timed.batch_count,
    }
    excess_ratio = timed.call_s / busy_s - 1 if timed.call_s > busy_s > 0 else None
    bounds = timer_bounds(_RULE, _kernel_excess_ratio(timed, busy_s)) if claims_kernel(evidence) else ()
    return Found(facts=facts, effect_ratio=excess_ratio, bounds=bounds)


def _surely_waits(timed: Loop, usual_s: float, busy_s: float, limits: HostBoundLimits) -> bool:
    """Return whether a usual call idles by more than the gauge's error, which also covers one or two pauses."""
    idle_s = usual_s - busy_s * timed.calls_count - GAUGE_ERROR_RATIO * timed.round_s
    return idle_s > limits.idle_s * timed.calls_count


def _kernel_excess_ratio(timed: Loop, busy_s: float) -> float | None:
    """Return the most by which a reading can exceed its kernel, as a ratio, or None if no part is certainly the kernel's.

    The launch lies between the two readings of the GPU's timer and counts as utilisation.  On an H200, kernels of
    27 to 305 µs read 5.2 to 5.9 µs too long although utilisation matched the times.
    """
    kernel_s = min(timed.entry_s - AROUND_NOTHING_S, busy_s * timed.calls_count)
    return timed.entry_s / kernel_s - 1.0 if kernel_s > 0.0 else None


def _launch_facts(share: LaunchShare | None) -> dict[str, Fact]:
    if share is None:
        return {}
    names = ("gpu_ratio", "launch_s", "issue_s", "gap_s", "launches_count", "starved_ratio")
    return {"share": str(share), **{name: getattr(share, name) for name in names}}


def _is_starved(evidence: Evidence, timed: Loop, share: LaunchShare, limits: HostBoundLimits) -> bool:
    """Return whether the usual call waited for its launch while other work kept the GPU busy between the calls."""
    if share.starved_ratio <= limits.starved_ratio or not has_other_work(evidence):
        return False
    idle_s = waited_s(evidence, timed)
    # A user's loop may wait for the GPU in each call.  Only the calls of a harness are certainly launches.
    is_harness = amount(evidence.declared, "timer_overhead_s") is not None
    return is_harness if idle_s is None else idle_s > (1.0 - limits.fed_ratio) * timed.call_s


def _starved(timed: Loop, share: LaunchShare, facts: dict[str, Fact]) -> Answer:
    """Return the finding for a GPU that waited for launches and did other work between: utilisation cannot separate both."""
    facts |= {
        "what": f"the GPU waited for the launch of {share.starved_ratio:.0%} of the calls",
        "call_s": timed.call_s,
        "idle_s": share.launch_s,
        "idle": f"up to {readable(share.launch_s)}",
        "call": readable(timed.call_s),
        "batch_count": timed.batch_count,
    }
    return Found(facts=facts, bounds=timer_bounds(_RULE, share.excess_ratio))
