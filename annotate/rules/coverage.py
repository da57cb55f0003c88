"""Rules about the evidence: whether anybody watched, the work ran to its end, and watching itself was a load."""

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
    """Finds windows that nobody watched: no daemon, a daemon that went away, a GPU that stopped answering.

    Why it matters:
        A number without a witness is a claim.  What no reading covers cannot be judged, and silence must never read as
        a quiet machine.

    What it cannot see:
        Whether the readings are true: a driver that repeats an old value looks like a steady one.  It answers "not
        observed" and never "found", so that a missing witness makes a window unproven and nothing worse.

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
        A number from work that stopped half way is a number of something else, and often a very good one.

    What it cannot see:
        Work that gave up silently: a caught exception, a loop left early.  It answers "not observed" and never "found",
        because what such a window measured is unknown rather than bad.

    Remedy:
        Mend what failed and measure again.

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
    """Finds windows in which the witness itself was a load.

    Why it matters:
        A watcher that takes processors from the benchmark makes the noise it reports.  From another process on a machine
        with processors to spare, 100 Hz changed neither a matrix product nor the tail of launches by anything measurable;
        on one processor there is none to spare.

    What it cannot see:
        What its calls do inside the driver, whose locks the benchmark's own calls may wait for.  That cost cannot be seen
        from one window: it takes the same work with and without the daemon, in turns.  Nor whether the daemon ran beside the
        benchmark or on a processor that idled.

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
