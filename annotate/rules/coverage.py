"""Rules about the evidence: unwatched windows, interrupted work, and the load of gpuwatch's daemon."""

from collections.abc import Mapping
from typing import Annotated

from annotate.claims import Claim
from annotate.derived.unwatched import lost_because
from annotate.evidence import SIGNALS, STALE_NS, Evidence, Fact, Lane
from annotate.ranges import Duration, Processors, Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Unobserved, rule

# Characters of a declared reason that are kept.
_WORDS_COUNT = 120


@rule(
    "stale-daemon",
    kind=RuleKind.INTEGRITY,
    says="no daemon was watching this GPU",
    remedy="Start the daemon and measure again.",
)
def stale_daemon(evidence: Evidence, claim: Claim) -> Answer:
    """Finds unwatched windows: no daemon, a daemon that ended, a GPU that stopped answering.

    Why it matters:
        A number without a witness cannot be checked.  The judge cannot judge time without readings, and missing readings do
        not mean a quiet machine.

    Limits of detection:
        False readings: a driver that repeats an old value looks steady.  The rule answers "not observed" and never "found",
        so a missing witness makes a window unproven but never rejects it.

    Remedy:
        Start the daemon (``gpuwatch doctor`` reports why it is not running) and measure again.  If the GPU was lost, read
        the kernel log for Xid messages first.

    Source:
        Every reading of the fast lane around the window, and the events of a lost GPU.
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
    remedy="Let the work finish and measure again.",
)
def incomplete_body(evidence: Evidence, claim: Claim) -> Answer:
    """Finds windows whose work was interrupted: by an exception, a failed command or a process that ended.

    Why it matters:
        A number from interrupted work describes other work, and is often too good.

    Limits of detection:
        Work that stopped silently: a caught exception, a loop left early.  The rule answers "not observed" and never
        "found", because the deviation of such a window is unknown.

    Remedy:
        Fix the failure and measure again.

    Source:
        The exception that left the window's body, or the exit code of the command, as declared by the client.  The daemon
        records a process that ended.
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
    says="watching used {busy_ratio:.0%} of a CPU core",
    remedy="Lower the daemon's rate, watch fewer GPUs, or reserve a CPU core for the daemon.",
)
def sampler_perturbs(
    evidence: Evidence,
    claim: Claim,
    *,
    note_ratio: Annotated[Processors, "of one core: ten times the 4 % that 100 Hz took on an H200"] = 0.4,
    allowed_ratio: Annotated[Share, "of the benchmark's cores: other rules also count a wait of 5 % of the time"] = 0.05,
    shortest_s: Annotated[Duration, "in shorter windows, opening and closing are most of the daemon's work"] = 1.0,
) -> Answer:
    """Finds windows in which gpuwatch's daemon loaded the machine.

    Why it matters:
        A daemon that takes CPU time from the benchmark causes the noise it reports.  On a machine with idle cores, sampling
        at 100 Hz measurably changed neither a matrix product nor the tail of launches.  A machine with one core has no idle
        core.

    Limits of detection:
        Waits of the benchmark's calls for locks that the daemon's calls hold inside the driver.  Only runs of the same work
        with and without the daemon, in turns, show that cost.  The core on which the daemon ran, which may have been idle.

    Remedy:
        Lower the rate of the fast lane or the number of watched GPUs, or give the benchmark cores that the daemon may not
        use.

    Source:
        The daemon's CPU time between the window's edges.  At its start the daemon measures the cost of each call, and moves
        expensive calls out of the fast lanes.
    """
    host = evidence.host
    watcher_s, span_s = host.watcher_cpu_s, host.span_s
    if watcher_s is None or span_s is None:
        return Unobserved(evidence.absence or "the daemon's CPU time was not observed")
    if span_s < shortest_s:
        return Unobserved(f"{span_s:.2g} s are too short to separate watching from opening and closing the window")
    if evidence.device and evidence.device.simulated:
        return Unobserved("the daemon also simulated the GPU, and its CPU time includes the simulation")
    busy_ratio = watcher_s / span_s
    facts: dict[str, Fact] = {"busy_ratio": busy_ratio, "allowed_count": host.cpu_allowed_count}
    if host.cpu_allowed_count is None:
        return Unobserved("the number of CPU cores that the benchmark may use was not observed")
    is_large = busy_ratio > min(note_ratio, allowed_ratio * host.cpu_allowed_count)
    return Found(facts=facts) if is_large else Clear(facts)


def _worded(declared: Fact) -> str:
    words = " ".join(declared.split()) if isinstance(declared, str) else ""
    return (words if len(words) <= _WORDS_COUNT else words[: _WORDS_COUNT - 1] + "…") or "an unnamed reason"


RULES: tuple[Rule, ...] = (stale_daemon, incomplete_body, sampler_perturbs)
RETIRED: Mapping[str, str] = {
    "sampler-gap": "dark-time",
    "window-too-short": "the steady state of regime-change, and the repeatability of each number",
}
RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = {sampler_perturbs.name: ("flag_ratio",)}
