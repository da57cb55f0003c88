"""Rules about one healthy, unaltered GPU throughout: settings, errors, persistence, and the clock that timed it."""

from typing import Annotated

import numpy as np

from annotate.budget import Bound, Group, Number
from annotate.claims import Claim
from annotate.derived.hardware_errors import hardware_errors
from annotate.evidence import Evidence, Fact, Timings
from annotate.ranges import Count, Duration, Watts
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule

# How people call each setting, and how its values read.
_SETTINGS = {
    "power_limit_w": ("the power limit", "{:.0f} W"),
    "persistence_mode": ("persistence mode", "{:.0f}"),
    "ecc_mode": ("ECC", "{:.0f}"),
    "mig_mode": ("MIG", "{:.0f}"),
    "compute_mode": ("the compute mode", "{:.0f}"),
    "sm_clock_lock_mhz": ("the SM clock asked for", "{:.0f} MHz"),
}
_MILD = ("persistence_mode", "compute_mode")  # these change no speed while a process works
_CLOCK_SETTINGS = ("power_limit_w", "sm_clock_lock_mhz")  # what moves by the clock alone stays as it was at one clock
_BY_CLOCK = (Number.THROUGHPUT, Number.MEAN, Number.MEDIAN)
_SWITCH = {"0": "off", "1": "on"}


@rule(
    "setting-changed",
    kind=RuleKind.INTEGRITY,
    says="{setting} changed from {before} to {after} {when}",
    remedy="Find who changes settings (a script, DCGM, a scheduler's prologue), and measure again once they stand.",
)
def setting_changed(
    evidence: Evidence,
    claim: Claim,
    *,
    power_tolerance_w: Annotated[Watts, "limits are set in whole watts and read back exactly; half a watt is rounding"] = 0.5,
) -> Answer:
    """Finds a power limit, clock lock or mode that changed around or during the window.

    Why it matters:
        The mean then mixes two configurations and describes neither.  A power limit alone can halve the speed.

    What it cannot see:
        When exactly: settings are read about once a second, so a change between a reading before the window and one
        inside may have come first; it flags.  A change that was undone between two readings.  Persistence and compute mode
        move no number, and are only noted.  Settings the driver does not report (it leaves out those a GPU does not have); without the power limit,
        which every number rests on, it clears nothing.

    Remedy:
        Find what sets it (a job scheduler's prologue, DCGM, another user's script) and let settings stand for some seconds
        before measuring.

    Source:
        NVML's enforced power limit, clock lock, and persistence, ECC, MIG and compute modes.
    """
    window = evidence.window
    changes: list[tuple[float, str, float, float, int, int]] = []
    read: list[str] = []
    for name in _SETTINGS:
        column = evidence.trace.column(name).observed
        at_ns, values = column.at_ns, column.values
        first = max(0, int(np.searchsorted(at_ns, window.begin_ns, side="right")) - 1)
        last = min(len(at_ns) - 1, int(np.searchsorted(at_ns, window.end_ns, side="left")))
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
    if not changes:
        if "power_limit_w" not in read:
            return Unobserved(evidence.absence or "the power limit was not read twice around the window")
        return Clear({"settings_count": len(read)})
    inside_ratio, name, before, after, since_ns, until_ns = max(changes, key=lambda change: (change[1] not in _MILD, change[0]))
    title, form = _SETTINGS[name]
    facts: dict[str, Fact] = {
        "setting": title,
        "before": _value(name, form, before),
        "after": _value(name, form, after),
        "when": _when(evidence, since_ns, until_ns),
        "changes_count": len(changes),
    }
    severity = Severity.NOTE if name in _MILD else Severity.REJECT if inside_ratio == 1.0 else Severity.FLAG
    return Found(severity, facts, span_ns=(since_ns, until_ns), bounds=() if name in _MILD else _unbounded(name))


def _unbounded(name: str) -> tuple[Bound, ...]:
    """Return that a setting moved the numbers, by nobody knows how much: of two machines neither need fill a fifth of the window."""
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
    replays_count: Annotated[Count, "a single burst at one link event is normal; one a window says nothing"] = 8.0,
) -> Answer:
    """Finds memory errors, row remaps, Xid messages and a PCIe link that repeats itself.

    Why it matters:
        A faulty GPU retries, remaps and isolates while it works.  Other GPUs do not reproduce its times, and its results
        may be wrong.

    What it cannot see:
        Errors the driver corrects without counting.  Where one of its counters is not there (a GPU without ECC, or with ECC
        off, counts no memory errors), it says which, and clears nothing.  Counters are read about once a second, so an error
        within a second of the window's edge counts as inside.  Xid messages name what happened on this GPU, whoever caused
        it: a crash of another process's kernel is among them; that none came is no proof, so they only ever find.

    Remedy:
        Look for ``NVRM: Xid`` in the kernel log.  Uncorrectable errors and pending remaps need a reset of the GPU, repeated
        ones its replacement.  For a replaying link, check seating, riser and slot.

    Source:
        NVML's volatile ECC counters (differences only: they run since the driver was loaded), row-remap state, PCIe replay
        counter, and Xid events.
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
    settled_s: Annotated[Duration, "the driver needs a few seconds to bring a GPU up; whoever was there before has paid"] = 3.0,
) -> Answer:
    """Finds a driver that lets go of the GPU whenever its last user leaves.

    Why it matters:
        The next process then pays seconds of initialisation, and clocks, ECC scrubbing and settings start afresh: the
        first windows of each process differ from the later ones.  In steady state there is no effect.

    What it cannot see:
        Another program (a display server, a monitoring daemon) that keeps the driver loaded.  In a virtual machine the mode
        is the guest's; what the host does is out of sight.

    Remedy:
        Run ``nvidia-persistenced`` or switch the mode on.  Without root, keep one process with a context alive throughout.

    Source:
        NVML's persistence mode, and who was on the GPU before the window began.
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
    remedy="Stop what sets the clock while measuring, take times from a monotonic clock, and hand them over in seconds.",
)
def clock_source_step(
    evidence: Evidence,
    claim: Claim,
    *,
    step_s: Annotated[Duration, "reading both clocks is good to microseconds; 5 ms move a sample to another refresh"] = 0.005,
    at_once_count: Annotated[
        Count, "of calls: a GPU of compute capability 9.0 runs at most so many kernels side by side"
    ] = 128.0,
    look_s: Annotated[Duration, "the daemon looks for suspensions five times a second, and a tenth is its refresh"] = 0.3,
) -> Answer:
    """Finds a clock that was set or stood still during the window, and times that do not lie in the window they were handed to.

    Why it matters:
        Evidence is laid beside times by a monotonic clock that both sides share, so a step of the wall clock harms only
        what the caller timed by it, and the stamps of the driver's power record.  Times from another clock are set
        beside readings of another moment, and every rule that looks at single iterations then errs.  Milliseconds handed
        over as seconds add up to more time than there was.

    What it cannot see:
        Milliseconds that were handed over as seconds, where they were taken in less than an eighth of the window.  A slow
        slew, which moves both clocks alike.  Which clock the caller used: a step is a flag only where the times were
        the caller's own.  How the GPU was on the other side of a suspension: its clocks, heat and power began anew, while the
        clock of all evidence stood still.

    Remedy:
        Let time synchronisation settle before measuring; time with ``time.perf_counter`` or CUDA events.

    Source:
        Wall time less CLOCK_MONOTONIC at the window's two edges, suspensions of the machine that the daemon noticed, and the
        instants and lengths of timed iterations.
    """
    window, timings = evidence.window, evidence.timings
    if timings is not None and (too_long := _longer_than(window.length_s, timings, step_s, at_once_count)):
        return Found(Severity.REJECT, too_long)
    if timings is not None and len(timings.at_ns):
        early_ns, late_ns = window.begin_ns - int(timings.at_ns.min()), int(timings.at_ns.max()) - window.end_ns
        off_s = max(early_ns, late_ns) / 1e9
        if off_s > step_s:
            side = "before it began" if early_ns > late_ns else "after it ended"
            return Found(Severity.FLAG, {"disagreement": f"times of the window lie up to {off_s:.3g} s {side}", "off_s": off_s})
    if (suspension := _suspension(evidence, look_s)) is not None:
        return suspension
    stepped_s = evidence.host.wall_step_s
    if stepped_s is None:
        return Unobserved("whether the wall clock was set meanwhile was not observed")
    facts: dict[str, Fact] = {"stepped_s": stepped_s}
    if abs(stepped_s) <= step_s:
        return Clear(facts)
    facts["disagreement"] = f"the wall clock was set by {stepped_s:+.3g} s during the window"
    own = evidence.declared.get("timer") == "caller"
    return Found(Severity.FLAG if own else Severity.NOTE, facts)


def _suspension(evidence: Evidence, look_s: float) -> Found | None:
    """Return the first suspension of the machine that can lie inside the window; None without any.

    Its event stands at the look that noticed it, and its gap in evidence begins at the look before.
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
    """Return what cannot have run within a window of this length, alone or together; None if all may have."""
    took_s = timings.took_s[np.isfinite(timings.took_s)]
    longest_s, together_s = float(took_s.max(initial=0.0)), float(took_s.sum()) * timings.calls_count
    if longest_s > length_s + step_s:
        text, told_s = f"an iteration of {longest_s:.3g} s was handed to a window of {length_s:.3g} s", longest_s
    elif together_s > at_once_count * (length_s + step_s):
        text, told_s = f"the times add up to {together_s:.3g} s, in a window of {length_s:.3g} s", together_s
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
