"""Rules about an unchanged, healthy GPU and one clock source: settings, errors, persistence, clock steps."""

from typing import Annotated

import numpy as np

from annotate.budget import Bound, Group, Number
from annotate.case import Case
from annotate.claims import Claim
from annotate.derived.hardware_errors import hardware_errors
from annotate.derived.settings_throughout import beyond_limit
from annotate.evidence import Evidence, Fact, Timings
from annotate.ranges import Count, Duration, Watts
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule
from annotate.times.durations import readable

# The title and number format of each setting.
_SETTINGS = {
    "power_limit_w": ("the power limit", "{:.0f} W"),
    "persistence_mode": ("persistence mode", "{:.0f}"),
    "ecc_mode": ("ECC", "{:.0f}"),
    "mig_mode": ("MIG", "{:.0f}"),
    "compute_mode": ("the compute mode", "{:.0f}"),
    "sm_clock_lock_mhz": ("the requested SM clock", "{:.0f} MHz"),
}
_MILD = ("persistence_mode", "compute_mode")  # these do not change the speed while a process works
_CLOCK_SETTINGS = ("power_limit_w", "sm_clock_lock_mhz")  # these act through the clock, so the time at one clock is unchanged
_BY_CLOCK = (Number.THROUGHPUT, Number.MEAN, Number.MEDIAN)
_SWITCH = {"0": "off", "1": "on"}


@rule(
    "setting-changed",
    kind=RuleKind.INTEGRITY,
    says="{setting} changed from {before} to {after} {when}",
    remedy="Find what changes settings (a script, DCGM, a scheduler's prologue), and measure again with constant settings.",
)
def setting_changed(
    case: Case,
    *,
    power_tolerance_w: Annotated[Watts, "limits are set in whole watts and read back exactly; half a watt is rounding"] = 0.5,
) -> Answer:
    """Finds a power limit, clock lock or mode that changed around or during the window.

    Why it matters:
        The mean then mixes two configurations and describes neither.  A power limit alone can halve the speed.

    Limits of detection:
        The exact time: settings are read about once a second.  A change between readings before and inside the window may
        have come before the window, so it only flags.  A change that was undone between two readings, except a raised power
        limit that the power of a second exceeds by 2 %.  Persistence and compute mode do not change numbers and are only noted.
        Settings that the driver does not report, such as those that a GPU lacks.  Without readings of the power limit the rule
        does not clear.

    Remedy:
        Find the source (a job scheduler's prologue, DCGM, another user's script), and keep settings constant for some
        seconds before measuring.

    Source:
        NVML's enforced power limit, application clock, and persistence, ECC, MIG and compute modes.  After 3 s of load the mean
        power of a second was at most 99.9 % of the limit in 226 recorded windows of H200s.
    """
    evidence, window = case.evidence, case.evidence.window
    changes: list[tuple[float, str, float, float, int, int]] = []
    read: list[str] = []
    for name in _SETTINGS:
        column = evidence.trace.column(name).observed
        at_ns, values = column.at_ns, column.values
        first = max(0, int(at_ns.searchsorted(window.begin_ns, side="right")) - 1)
        last = min(len(at_ns) - 1, int(at_ns.searchsorted(window.end_ns, side="left")))
        if last <= first:
            continue
        read.append(name)
        tolerance = power_tolerance_w if name == "power_limit_w" else 0.0
        for i in range(first, last):
            if abs(values[i + 1] - values[i]) > tolerance:
                since_ns, until_ns = int(at_ns[i]), int(at_ns[i + 1])
                inside_ns = min(until_ns, window.end_ns) - max(since_ns, window.begin_ns)
                inside_ratio = max(0, inside_ns) / max(1, until_ns - since_ns)
                changes.append((inside_ratio, name, values[i], values[i + 1], since_ns, until_ns))
    if not changes and (beyond := beyond_limit(evidence, is_settled=case.load.is_settled)) is not None:
        facts = beyond.facts(window.begin_ns) | {"setting": _SETTINGS["power_limit_w"][0]}
        return Found(Severity.FLAG, facts, span_ns=beyond.span_ns, bounds=_unbounded("power_limit_w"))
    if not changes:
        if "power_limit_w" not in read:
            return Unobserved(evidence.absence or "the power limit was not read twice around the window")
        return Clear({"settings_count": len(read)})
    inside_ratio, name, before, after, since_ns, until_ns = max(changes, key=lambda change: (change[1] not in _MILD, change[0]))
    title, form = _SETTINGS[name]
    facts = {
        "setting": title,
        "before": _value(name, form, before),
        "after": _value(name, form, after),
        "when": _when(evidence, since_ns, until_ns),
        "changes_count": len(changes),
    }
    severity = Severity.NOTE if name in _MILD else Severity.REJECT if inside_ratio == 1.0 else Severity.FLAG
    return Found(severity, facts, span_ns=(since_ns, until_ns), bounds=() if name in _MILD else _unbounded(name))


def _unbounded(name: str) -> tuple[Bound, ...]:
    """Return bounds of unknown size: neither configuration need hold for a fifth of the window."""
    numbers = _BY_CLOCK if name in _CLOCK_SETTINGS else (*_BY_CLOCK, Number.MEDIAN_AT_CLOCK)
    return tuple(Bound(number=each, rule=setting_changed.name, group=Group.CLOCK, ratio=None) for each in numbers)


@rule(
    "hardware-error",
    kind=RuleKind.INTEGRITY,
    says="the GPU reported {errors}",
    remedy="Read the kernel log, reset the GPU or have it checked, and measure again.",
)
def hardware_error(
    evidence: Evidence,
    claim: Claim,
    *,
    replays_per_minute_count: Annotated[Count, "DCGM's default: NVIDIA recommends at most 8 replays a minute"] = 8.0,
    replays_count: Annotated[Count, "a single burst at one link event is normal"] = 8.0,
) -> Answer:
    """Finds memory errors, row remaps, Xid messages and PCIe replays.

    Why it matters:
        A faulty GPU retries, remaps and isolates while it works.  Other GPUs do not reproduce its times, and its results
        may be wrong.

    Limits of detection:
        Errors that the driver corrects without counting.  Errors of a missing counter: a GPU without ECC, or with ECC off,
        counts no memory errors.  The rule then names the counter and does not clear.  The exact time: counters are read about
        once a second, so an error within a second of the window's edge counts as inside.  The process that caused an Xid
        message, for example by a crashed kernel.  The absence of Xid messages proves nothing.

    Remedy:
        Look for ``NVRM: Xid`` in the kernel log.  After uncorrectable errors and pending remaps, reset the GPU; if they
        recur, replace it.  For a replaying link, check seating, riser and slot.

    Source:
        NVML's volatile ECC counters (differences only, because they count since the driver was loaded), row-remap state,
        PCIe replay counter, and Xid events.
    """
    found = hardware_errors(evidence, replays_count=replays_count, replays_per_minute_count=replays_per_minute_count)
    if found.grave or found.slight:
        errors = ", ".join(dict.fromkeys([*found.grave, *found.slight]))
        return Found(Severity.REJECT if found.grave else Severity.FLAG, {**found.facts, "errors": errors})
    if found.unread:
        return Unobserved(evidence.absence or f"not observed: {', '.join(found.unread)}")
    return Clear(found.facts)


@rule(
    "persistence-off",
    kind=RuleKind.LABEL,
    says="persistence mode off{where}",
    remedy="Switch it on (nvidia-smi -pm 1), or hold a context open before the window begins.",
)
def persistence_off(
    evidence: Evidence,
    claim: Claim,
    *,
    settled_s: Annotated[Duration, "the driver needs a few seconds to initialise a GPU for its first process"] = 3.0,
) -> Answer:
    """Finds a driver that releases the GPU whenever its last process ends.

    Why it matters:
        The next process then waits seconds for initialisation, and clocks, ECC scrubbing and settings start afresh.  The
        first windows of each process differ from the later ones.  In steady state there is no effect.

    Limits of detection:
        Another program (a display server, a monitoring daemon) that keeps the driver loaded.  The host of a virtual machine:
        the mode is that of the guest.

    Remedy:
        Run ``nvidia-persistenced`` or switch the mode on.  Without root, keep one process with a context alive throughout.

    Source:
        NVML's persistence mode, and the processes on the GPU before the window began.
    """
    modes = [bool(value) for value in evidence.trace.column("persistence_mode").observed.values]
    if evidence.device and evidence.device.persistence_mode is not None:
        modes.append(evidence.device.persistence_mode)
    if not modes:
        return Unobserved("persistence mode was not observed")
    if all(modes):
        return Clear()
    virtual = bool(evidence.device and evidence.device.virtualization not in (None, "none"))
    held = any(
        process_list.processes
        for process_list in evidence.trace.process_lists
        if process_list.at_ns <= evidence.window.begin_ns - settled_s * 1e9
    )
    where = " in this virtual machine" if virtual else ", but the GPU was in use before the window began" if held else ""
    return Found(facts={"where": where})


@rule(
    "clock-source-step",
    kind=RuleKind.INTEGRITY,
    basis=Basis.HOST,
    says="{disagreement}",
    remedy="Keep the wall clock unchanged while measuring, take times from a monotonic clock, and declare them in seconds.",
)
def clock_source_step(
    evidence: Evidence,
    claim: Claim,
    *,
    step_s: Annotated[Duration, "both clocks are read to microseconds; 5 ms can shift a sample to another refresh"] = 0.005,
    at_once_count: Annotated[
        Count, "of calls: a GPU of compute capability 9.0 runs at most this many kernels in parallel"
    ] = 128.0,
    look_s: Annotated[Duration, "the daemon checks for suspensions every 0.2 s, plus a refresh of 0.1 s"] = 0.3,
) -> Answer:
    """Finds a wall clock that was set or a machine that was suspended during the window, and times outside their window.

    Why it matters:
        Evidence and times share a monotonic clock.  A step of the wall clock therefore affects only times taken by that
        clock, and the stamps of the driver's power record.  Times from another clock are matched with readings of another
        moment, so every rule about single iterations errs.  Milliseconds declared as seconds add up to more than the window.

    Limits of detection:
        Milliseconds declared as seconds, if they cover less than an eighth of the window.  A slow slew, which affects both
        clocks equally.  The clock that the caller used: a step flags only times that the caller took.  The GPU's state across
        a suspension: clocks, heat and power start afresh while the clock of all evidence stops.

    Remedy:
        Let time synchronisation settle before measuring; time with ``time.perf_counter`` or CUDA events.

    Source:
        Wall time minus CLOCK_MONOTONIC at the window's two edges, suspensions of the machine that the daemon noticed, and
        the start times and lengths of timed iterations.
    """
    window, timings = evidence.window, evidence.timings
    if timings is not None and (too_long := _longer_than(window.length_s, timings, step_s, at_once_count)):
        return Found(Severity.REJECT, too_long)
    if timings is not None and len(timings.at_ns):
        early_ns, late_ns = window.begin_ns - int(timings.at_ns.min()), int(timings.at_ns.max()) - window.end_ns
        off_s = max(early_ns, late_ns) / 1e9
        if off_s > step_s:
            side = "before it began" if early_ns > late_ns else "after it ended"
            words = f"times of the window lie up to {readable(off_s)} {side}"
            return Found(Severity.FLAG, {"disagreement": words, "off_s": off_s})
    if (suspension := _suspension(evidence, look_s)) is not None:
        return suspension
    if (stepped_s := evidence.host.wall_step_s) is None:
        return Unobserved("steps of the wall clock were not observed")
    facts: dict[str, Fact] = {"stepped_s": stepped_s}
    if abs(stepped_s) <= step_s:
        return Clear(facts)
    facts["disagreement"] = (
        f"the wall clock was set {'forward' if stepped_s > 0.0 else 'back'} by {readable(abs(stepped_s))} during the window"
    )
    own = evidence.declared.get("timer") == "caller"
    return Found(Severity.FLAG if own else Severity.NOTE, facts)


def _suspension(evidence: Evidence, look_s: float) -> Found | None:
    """Return the first suspension of the machine that can lie inside the window; None without any.

    The event has the time of the check that noticed the suspension.  The gap begins at the check before.
    """
    window = evidence.window
    began_ns = {gap.end_ns: gap.begin_ns for gap in evidence.trace.gaps}
    for event in evidence.trace.events:
        since_ns = began_ns.get(event.at_ns, event.at_ns - round(look_s * 1e9))
        if event.kind == "suspended" and event.at_ns > window.begin_ns and since_ns < window.end_ns:
            span_ns = (max(since_ns, window.begin_ns), min(event.at_ns, window.end_ns))
            facts: dict[str, Fact] = {"disagreement": f"{event.text or 'the machine was suspended'} inside the window"}
            return Found(Severity.FLAG, facts, span_ns=span_ns)
    return None


def _longer_than(length_s: float, timings: Timings, step_s: float, at_once_count: float) -> dict[str, Fact] | None:
    """Return the facts about times that are too long for the window, alone or together, or None if all are possible."""
    took_s = timings.took_s[np.isfinite(timings.took_s)]
    longest_s, together_s = float(took_s.max(initial=0.0)), float(took_s.sum()) * timings.calls_count
    if longest_s > length_s + step_s:
        text, told_s = f"a window of {readable(length_s)} has an iteration of {readable(longest_s)}", longest_s
    elif together_s > at_once_count * (length_s + step_s):
        text, told_s = f"the times add up to {readable(together_s)}, in a window of {readable(length_s)}", together_s
    else:
        return None
    return {"disagreement": text, "told_s": told_s}


def _value(name: str, form: str, value: float) -> str:
    text = form.format(value)
    return _SWITCH.get(text, text) if name in ("persistence_mode", "ecc_mode", "mig_mode") else text


def _seconds(evidence: Evidence, at_ns: int) -> str:
    return f"{(at_ns - evidence.window.begin_ns) / 1e9:.1f} s"


def _when(evidence: Evidence, since_ns: int, until_ns: int) -> str:
    if since_ns < evidence.window.begin_ns:
        return "about when the window began"
    if until_ns > evidence.window.end_ns:
        return "about when the window ended"
    return f"{_seconds(evidence, since_ns)} to {_seconds(evidence, until_ns)} into the window"


RULES: tuple[Rule, ...] = (setting_changed, hardware_error, persistence_off, clock_source_step)
