"""Rules about the evidence: unwatched windows, work that was cut off, and the load of watching."""

from collections.abc import Mapping
from typing import Annotated

from annotate.claims import Claim
from annotate.derived.unwatched import lost_because
from annotate.evidence import SIGNALS, STALE_NS, Evidence, Fact, Lane
from annotate.ranges import Duration, Processors, Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Unobserved, rule

# An exception of more letters is no sentence.
_WORDS_COUNT = 120


@rule(
    "stale-daemon",
    kind=RuleKind.INTEGRITY,
    says="nobody was watching this GPU",
    remedy="Start the daemon and measure again.",
)
def stale_daemon(evidence: Evidence, claim: Claim) -> Answer:
    """Finds unwatched windows: no daemon, a daemon that went away, a GPU that stopped answering.

    Why it matters:
        A number without a witness is only a claim.  The judge cannot judge time without readings, and missing readings do
        not mean a quiet machine.

    What it cannot see:
        False readings: a driver that repeats an old value looks steady.  The rule answers "not observed" and never "found",
        so that a missing witness makes a window unproven and no worse.

    Remedy:
        Start the daemon (``gpuwatch doctor`` says why it is not running) and measure again.  If the GPU was lost, read
        the kernel log for Xid messages first.

    Source:
        Every reading of the fast lane around the window, and the driver's own lost and back events.
    """
    window = evidence.window
    if because := lost_because(evidence) or evidence.absence:
        return Unobserved(because)
    for name, column in evidence.trace.columns.items():
        near = column.where((column.at_ns >= window.begin_ns - STALE_NS) & (column.at_ns <= window.end_ns))
        if SIGNALS.get(name) == Lane.FAST and len(near.observed):
            return Clear()
    return Unobserved("no reading of this GPU in the window")


@rule(
    "incomplete-body",
    kind=RuleKind.INTEGRITY,
    basis=Basis.DECLARED,
    says="the measured work did not run to its end",
    remedy="Let it finish and measure again.",
)
def incomplete_body(evidence: Evidence, claim: Claim) -> Answer:
    """Finds windows whose work was cut off: an exception, a command that failed, a process that went away.

    Why it matters:
        A number from work that stopped half way describes other work, and is often too good.

    What it cannot see:
        Work that gave up silently: a caught exception, a loop left early.  The rule answers "not observed" and never
        "found", because the deviation of such a window is unknown.

    Remedy:
        Fix the failure and measure again.

    Source:
        Declared by the window: the exception that left its body, or the exit code of the command; the daemon itself notes a
        process that went away.
    """
    if abandoned := evidence.declared.get("abandoned"):
        return Unobserved(f"the window was cut short: {_worded(abandoned)}")
    if exception := evidence.declared.get("exception"):
        return Unobserved(f"the measured work ended with {_worded(exception)}")
    return Clear()


@rule(
    "sampler-perturbs",
    kind=RuleKind.LABEL,
    basis=Basis.HOST,
    says="watching took {busy_ratio:.0%} of a processor",
    remedy="Lower the daemon's rate, watch fewer GPUs, or leave it a processor of its own.",
)
def sampler_perturbs(
    evidence: Evidence,
    claim: Claim,
    *,
    note_ratio: Annotated[Processors, "of one processor: ten times the four hundredths that 100 Hz took on an H200"] = 0.4,
    allowed_ratio: Annotated[
        Share, "of the benchmark's processors: waiting for a twentieth of the time starves it elsewhere too"
    ] = 0.05,
    shortest_s: Annotated[Duration, "in less, opening and closing the window is most of what the daemon did"] = 1.0,
) -> Answer:
    """Finds windows in which gpuwatch's daemon loaded the machine.

    Why it matters:
        A daemon that takes processor time from the benchmark causes the noise it reports.  On a machine with idle
        processors, sampling at 100 Hz changed neither a matrix product nor the tail of launches measurably.  A machine with
        one processor has none idle.

    What it cannot see:
        Waits of the benchmark's calls for locks that the daemon's calls hold inside the driver.  Only the same work with
        and without the daemon, in turns, shows that cost.  The processor on which the daemon ran: it may have been an idle
        one.

    Remedy:
        Lower the rate of the fast lane, or the number of GPUs that are watched, or give the benchmark processors that the
        daemon may not use.

    Source:
        The daemon's own processor time between the window's edges.  The catalogue's latency guard is not asked here: a call
        found dear when the daemon starts is never asked often.  Figures: 3.3 % of a processor at 100 Hz over two H200s.
    """
    host = evidence.host
    watcher_s, span_s = host.watcher_cpu_s, host.span_s
    if watcher_s is None or span_s is None:
        return Unobserved(evidence.absence or "what watching took of the processors was not observed")
    if span_s < shortest_s:
        return Unobserved(f"{span_s:.2g} s are too short to tell what watching took from what the window's edges took")
    if evidence.device and evidence.device.simulated:
        return Unobserved("the daemon simulated the GPU too, which is not watching")
    busy_ratio = watcher_s / span_s
    facts: dict[str, Fact] = {"busy_ratio": busy_ratio, "allowed_count": host.cpu_allowed_count}
    if host.cpu_allowed_count is None:
        return Unobserved("how many processors the benchmark may use was not observed")
    is_large = busy_ratio > min(note_ratio, allowed_ratio * host.cpu_allowed_count)
    return Found(facts=facts) if is_large else Clear(facts)


def _worded(declared: Fact) -> str:
    """A declared reason as part of a sentence: it may be as long as a traceback, or no text."""
    words = " ".join(declared.split()) if isinstance(declared, str) else ""
    return (words if len(words) <= _WORDS_COUNT else words[: _WORDS_COUNT - 1] + "…") or "something it did not name"


RULES: tuple[Rule, ...] = (stale_daemon, incomplete_body, sampler_perturbs)
RETIRED: Mapping[str, str] = {
    "sampler-gap": "dark-time",
    "window-too-short": "the steady state of regime-change, and the repeatability of each number",
}
RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = {sampler_perturbs.name: ("flag_ratio",)}
