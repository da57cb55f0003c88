"""Rules about the evidence: only these look at when readings came rather than at what they said."""

from typing import Annotated

from annotate.claims import Claim
from annotate.derived.busy import has_reason
from annotate.derived.unwatched import dark_spans_ns, fast_rows, lost_because
from annotate.evidence import SIGNALS, STALE_NS, Evidence, Fact, Lane, Reason
from annotate.ranges import Duration, Processors, Refreshes, Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule

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
    "sampler-gap",
    kind=RuleKind.BIAS,
    says="telemetry is missing for {dark_s:.2f} of {window_s:.2f} s, {longest_s:.2f} s of it at a stretch",
    remedy="Free a processor for the daemon and measure again.",
)
def sampler_gap(
    evidence: Evidence,
    claim: Claim,
    *,
    longest_s: Annotated[
        Duration, "two refreshes of the driver's 100 ms page and a margin: a longer gap can hide an event"
    ] = 0.25,
    dark_ratio: Annotated[Share, "with a fifth of the window unseen, shares of time are guesses"] = 0.2,
    blind_ratio: Annotated[Share, "with most of the window unseen there is nothing left to judge by"] = 0.5,
) -> Answer:
    """Finds stretches of the window in which the GPU was not being read.

    Why it matters:
        A cap, a neighbour or a heat spell in an unread stretch leaves no trace but in the counters.  The sampler is a
        process like any other, and what starves it usually starves the benchmark too.

    What it cannot see:
        Only changed rows and one heartbeat a second are kept, so a stall shorter than a heartbeat shows only if the
        sampler was alive afterwards to report it.  After the last sign of life nothing counts as read.

    Remedy:
        Leave the daemon a processor: stop other CPU work, or lift its CPU limit.  After a debugger's
        stop, simply measure again.

    Source:
        Deadlines the sampler itself reported as missed, and silences longer than a heartbeat and a half.  Sixteen busy
        CPU processes brought a 200 Hz sampler down to 16 Hz with gaps of 224 ms on an H200 machine with 16 cores.
    """
    window = evidence.window
    seen, blank = fast_rows(evidence.trace)
    if not len(seen):
        return Unobserved(evidence.absence or "no reading of this GPU in the window")
    if window.length_ns <= 0:
        return Unobserved("the window has no length")
    dark = dark_spans_ns(evidence, seen, blank)
    lengths_s = [(end - begin) / 1e9 for begin, end in dark]
    dark_s, stretch_s = sum(lengths_s, 0.0), max(lengths_s, default=0.0)
    ratio = dark_s / window.length_s
    if ratio > blind_ratio:
        return Unobserved(f"telemetry is missing for {dark_s:.2f} of {window.length_s:.2f} s")
    facts: dict[str, Fact] = {"dark_s": dark_s, "longest_s": stretch_s, "window_s": window.length_s}
    if stretch_s > longest_s or ratio > dark_ratio:
        begin_ns, end_ns = max(dark, key=lambda span: span[1] - span[0])
        return Found(Severity.FLAG, facts, span_ns=(begin_ns, end_ns))
    return Clear(facts)


@rule(
    "window-too-short",
    kind=RuleKind.BIAS,
    says="{window_s:.3g} s is too short, because {because}",
    remedy="Run the same work for at least {needed_s:.3g} s.",
)
def window_too_short(
    evidence: Evidence,
    claim: Claim,
    *,
    shortest_s: Annotated[Duration, "the power controller of an H200 swings with a period near 1 s"] = 1.0,
    shortest_capped_s: Annotated[Duration, "a capped clock needs about 3 s to settle"] = 3.0,
    refreshes_count: Annotated[
        Refreshes, "with fewer than ten values of the clock, neither trend nor spread can be told"
    ] = 10.0,
    capped_ratio: Annotated[Share, "capped for more than half of its last second: the cap is this work's normal state"] = 0.5,
) -> Answer:
    """Finds windows in which power, clock and noise cannot show themselves.

    Why it matters:
        From idle, an H200 runs a GEMM 14 % too fast for 56-75 ms before the power cap engages, and then swings about its
        mean for seconds.  An interval computed from 100 ms of a capped GEMM contained the long-run median 3 % of the time.

    What it cannot see:
        Work that was warm and steady before the window began, and kernels that no clock moves: copies are fine in 0.1 s
        (their intervals held in 88 % of cases).  It knows only how long the window was.

    Remedy:
        Put more iterations of the same work into the window.  If the work is short by nature, state a burst claim and
        repeat the window.

    Source:
        The window's own length, the clock's measured refresh period, and time under the power cap in its last second.
        Figures: H200 at 700 W, driver 580.159.04.
    """
    if not evidence.trace.columns:
        return Unobserved(evidence.absence or "no reading of this GPU in the window")
    window_s = evidence.window.length_s
    refresh_s = evidence.trace.refresh_of_ns("sm_clock_mhz") / 1e9
    needs = [
        (shortest_s, "the power controller's swing does not fit"),
        (refreshes_count * refresh_s, f"the clock is refreshed only every {refresh_s:.3g} s"),
    ]
    capped = _capped_at_end_ratio(evidence)
    if capped is not None and capped > capped_ratio:
        needs.append((shortest_capped_s, "the power cap held at its end and had not settled"))
    needed_s, because = max(needs)
    if window_s < needed_s:
        facts: dict[str, Fact] = {"window_s": window_s, "needed_s": needed_s, "because": because}
        return Found(Severity.FLAG, facts, span_ns=(evidence.window.begin_ns, evidence.window.end_ns))
    if capped is None and window_s < shortest_capped_s:
        return Unobserved("whether the power cap held at the window's end was not observed")
    return Clear({"window_s": window_s, "needed_s": needed_s})


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
    says="watching itself took {busy_ratio:.0%} of a processor, where the benchmark had {allowed_count}",
    remedy="Lower the daemon's rate, watch fewer GPUs, or leave it a processor of its own.",
)
def sampler_perturbs(
    evidence: Evidence,
    claim: Claim,
    *,
    note_ratio: Annotated[Processors, "of one processor: ten times the four hundredths that 100 Hz took on an H200"] = 0.4,
    flag_ratio: Annotated[
        Share, "of the benchmark's processors: who waits a twentieth of the time is starved elsewhere too"
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
    if busy_ratio > flag_ratio * host.cpu_allowed_count:
        return Found(Severity.FLAG, facts)
    return Found(Severity.NOTE, facts) if busy_ratio > note_ratio else Clear(facts)


def _worded(declared: Fact) -> str:
    """A declared reason as part of a sentence: it may be as long as a traceback, or no text."""
    words = " ".join(declared.split()) if isinstance(declared, str) else ""
    return (words if len(words) <= _WORDS_COUNT else words[: _WORDS_COUNT - 1] + "…") or "something it did not name"


def _capped_at_end_ratio(evidence: Evidence) -> float | None:
    """The share of the window's last second under the power cap: by counter, else by flag."""
    window = evidence.window
    begin_ns = max(window.begin_ns, window.end_ns - 1_000_000_000)
    if begin_ns < window.end_ns:
        increase = evidence.trace.increase("power_cap_ns", begin_ns, window.end_ns)
        if increase is not None:
            return min(1.0, increase.ratio)
        masks = evidence.trace.within("event_reasons_mask", begin_ns, window.end_ns).observed.values
        if len(masks):
            return float(has_reason(masks, Reason.SW_POWER_CAP).mean())
    return None


RULES: tuple[Rule, ...] = (stale_daemon, incomplete_body, sampler_gap, window_too_short, sampler_perturbs)
