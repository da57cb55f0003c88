"""The outcome of one window in CI: pass, fail, or neutral if the machine spoiled the measurement or nothing is decided.

A finding reports an event; this module decides whether the benchmark or the machine caused the event.  A build fails only
for the benchmark's own faults, and for a slower time if window and baseline can be compared.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from annotate.budget import Number, NumberBudget
from annotate.compare.decision import Comparison, Decision, change_text
from annotate.user_policy import Policy
from annotate.verdict import Finding, Status, Verdict

if TYPE_CHECKING:
    from annotate.compare.two_machines import MachineTerms
    from gpuwatch.report.record import ReportedWindow

# Effects on the clock only: times at one clock are not affected.
CLOCK_RULES = frozenset({
    "throttle-thermal", "throttle-hw-slowdown", "throttle-power-brake", "sync-boost-limited", "clock-drift", "clock-ramp",
    "clock-low-no-reason", "clock-levels", "regime-change",
})  # fmt: skip
# Also effects of the machine, its settings, its other users, or the order and number of comparisons.
MACHINE_RULES = CLOCK_RULES | {
    "stale-daemon", "sampler-perturbs", "power-limited", "power-reading-stale", "mem-clock-change", "locked-clock-missed",
    "clock-controller-present", "nvml-clock-untrue", "lock-unproven", "dark-time", "record-shift", "contention-process",
    "contention-residual", "contention-shared-partition", "display-active", "numa-pcie-affinity", "overlapping-window",
    "setting-changed", "hardware-error", "persistence-off", "clock-source-step", "hardware-mismatch", "software-mismatch",
    "boot-changed", "clock-between-arms", "order-bias", "aa-noise-floor-missing", "multiple-looks",
}  # fmt: skip
# Causes that make any finding the machine's.
_MACHINE_CAUSES = frozenset({"run-queue", "suspended"})
_UNFINISHED = "incomplete-body"
_AT_ONE_CLOCK = ("corrected to", "both at", "two machines, at")


class GateOutcome(StrEnum):
    """The outcomes, best first.  Neutral requests another measurement without failing the build."""

    PASS = "pass"  # noqa: S105 - not a password
    NEUTRAL = "neutral"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class GateTerms:
    """The statuses that fail, a policy that replaces the windows' own, and the terms of comparing two machines."""

    failing: Collection[Status]
    policy: Policy | None
    machine: MachineTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedWindow:
    """One window with its outcome, the reason in one line, and its comparison."""

    name: str
    outcome: GateOutcome
    why: str
    window: ReportedWindow
    comparison: Comparison | None = None

    @property
    def number(self) -> NumberBudget | None:
        """Return the leading number; None for a window without numbers."""
        budget = self.window.verdict.budget
        return None if budget is None or budget.leading is None else budget.number(budget.leading)

    @property
    def change(self) -> str:
        """Return the decision and change against the baseline; empty without a comparison."""
        found = self.comparison
        if found is None:
            return ""
        change = f" {change_text(found.ratio, uncertain=found.within_noise)}" if found.ratio is not None else ""
        return f"{found.decision.value.upper()}{change}"


def is_machines(finding: Finding) -> bool:
    """Return True if the machine may have caused a hazard."""
    return finding.rule in MACHINE_RULES or (finding.cause is not None and finding.cause.kind in _MACHINE_CAUSES)


def spoiled(verdict: Verdict, *, at_one_clock: bool = False) -> str:
    """Return the machine's fault or the missing evidence that spoiled a window; empty for an unspoiled one."""
    if verdict.status is Status.VALID:
        return ""
    for finding in _counted(verdict):
        if is_machines(finding) and not (at_one_clock and finding.rule in CLOCK_RULES):
            return f"{finding.rule}: {finding.says}"
    return f"not proven: {verdict.why}" if verdict.why or verdict.status is Status.UNPROVEN else ""


def gate(window: ReportedWindow, name: str, baseline: ReportedWindow | None, terms: GateTerms) -> GatedWindow:
    """Return the outcome of a window, compared with a baseline if there is one."""
    found = GatedWindow(name=name, outcome=GateOutcome.PASS, why="", window=window)
    verdict = window.verdict
    own = [each for each in _counted(verdict) if not is_machines(each)]
    if wrong := _own_fault(verdict, own):
        return replace(found, outcome=GateOutcome.FAIL, why=f"{wrong.rule}: {wrong.says}")
    if baseline is not None and baseline.evidence is not None and window.evidence is not None:
        found = _compared(found, baseline, terms)
        comparison = found.comparison
        at_one_clock = comparison is not None and any(word in comparison.design for word in _AT_ONE_CLOCK)
        if why := spoiled(baseline.verdict, at_one_clock=at_one_clock):
            return replace(found, outcome=GateOutcome.NEUTRAL, why=f"the baseline was spoiled: {why}")
    else:
        at_one_clock = False
    if why := spoiled(verdict, at_one_clock=at_one_clock):
        return replace(found, outcome=GateOutcome.NEUTRAL, why=why)
    if verdict.status in terms.failing:
        why = f"{own[0].rule}: {own[0].says}" if own else f"the window is {verdict.status.value}"
        return replace(found, outcome=GateOutcome.FAIL, why=why)
    return _decided(found, has_baseline=baseline is not None)


def _compared(found: GatedWindow, baseline: ReportedWindow, terms: GateTerms) -> GatedWindow:
    from annotate.compare.two_runs import of_runs

    before, now = baseline.evidence, found.window.evidence
    assert before is not None and now is not None  # noqa: S101, PT018 - the caller has checked
    compared = of_runs(before, now, terms.policy, names=("baseline", found.name), terms=terms.machine)
    return replace(found, comparison=compared)


def _decided(found: GatedWindow, *, has_baseline: bool) -> GatedWindow:
    if found.comparison is None:
        return replace(found, why="no stored evidence to compare" if has_baseline else "")
    decision, limit_ratio = found.comparison.decision, slowest_ratio(found.comparison)
    if decision is Decision.SLOWER:
        return replace(found, outcome=GateOutcome.FAIL, why="slower than the baseline")
    if decision is Decision.INCONCLUSIVE and limit_ratio is not None:
        return replace(found, why=f"slower by {100 * limit_ratio:.2g} % at most")
    if decision in (Decision.INCONCLUSIVE, Decision.INCOMPARABLE):
        reasons = "; ".join(found.comparison.reasons[:1])
        return replace(found, outcome=GateOutcome.NEUTRAL, why=f"{decision.value}: {reasons}")
    return found


def slowest_ratio(comparison: Comparison) -> float | None:
    """Return the largest possible slowdown of the second window; None if unknown or possibly above both floor and margin.

    Successive runs without a common clock never count as the same, but a gate only needs to exclude a slowdown.
    """
    ratio, mean, most_ratio = comparison.ratio, comparison.mean_ratio, max(comparison.floor_ratio, comparison.margin_ratio)
    if ratio is None or ratio.high > 1.0 + most_ratio or (mean is not None and mean.centre > 1.0 + most_ratio):
        return None
    return max(0.0, ratio.high - 1.0)


def _own_fault(verdict: Verdict, own: Sequence[Finding]) -> Finding | None:
    """Return a finding that voids the number on any machine (broken integrity, or unfinished work); None without one."""
    unfinished = (each for each in verdict.unobserved if each.rule == _UNFINISHED and each.required)
    integrity = (each for each in own if each.severity == "reject" and each.kind == "integrity")
    return next(integrity, None) or next(unfinished, None)


def _counted(verdict: Verdict) -> list[Finding]:
    return [each for each in verdict.hazards if each.severity in ("flag", "reject") and not each.accepted]


def overall(windows: Collection[GatedWindow]) -> GateOutcome:
    """Return the worst outcome of the windows; pass without windows."""
    order = list(GateOutcome)
    return max((each.outcome for each in windows), key=order.index, default=GateOutcome.PASS)


def exportable(windows: Collection[GatedWindow]) -> list[tuple[GatedWindow, NumberBudget]]:
    """Return the windows that are not neutral and have a time, with this time, for charts."""
    found = [(each, each.number) for each in windows if each.outcome is not GateOutcome.NEUTRAL]
    return [
        (each, number)
        for each, number in found
        if number is not None and number.value is not None and number.number is not Number.THROUGHPUT
    ]
