"""Tests of the gate's outcomes and output formats."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from markdown_it import MarkdownIt

from annotate.compare.two_machines import MachineTerms
from annotate.evidence import Evidence, Host, Ownership, Process
from annotate.judge import judge
from annotate.rules import RULES
from annotate.verdict import Status
from gpuwatch.gate import gate_formats
from gpuwatch.gate.gate_outcome import CLOCK_RULES, MACHINE_RULES, GatedWindow, GateOutcome, GateTerms, gate, overall
from gpuwatch.report.record import ReportedWindow
from tests.annotate.builders import OWN, evidence
from tests.annotate.compare.test_decision import stamped
from tests.annotate.occurrences.comparison import times

NEIGHBOUR = Process(pid=77, name="x", user="u", memory_bytes=10**9, utilization_ratio=0.5, ownership=Ownership.FOREIGN)
HOT = {"event_reasons_mask": 0x40, "hw_thermal_ns": lambda t: max(0.0, t) * 5e8, "sm_clock_mhz": 1490}
# Rules whose hazards the benchmark causes, or whose findings name a known cause.
OWN_RULES = {
    "incomplete-body", "no-work", "idle-stretch", "unaccounted-time", "bursty-duty-cycle", "work-levels", "contention-self",
    "missing-sync", "wrong-stream", "host-bound", "short-kernel", "timer-overhead", "timer-tampered", "profiler-attached",
    "allocator-churn", "data-dependent-power", "background-thread", "warm-cache-unintended", "flush-insufficient",
    "result-cached", "impossible-time", "semantic-mismatch", "cold-start", "mean-vs-median-gap", "outliers", "bimodal",
    "iteration-growth", "iteration-levels", "claimed-work",
}  # fmt: skip


def made(took_s: float = 2e-3, *, label: str = "gemm", seed: int = 0, **changes: Any) -> Evidence:
    return evidence(timings=stamped(took_s, 1490.0, seed=seed), host=Host(boot_id="b"), label=label, **changes)


def reported(found: Evidence) -> ReportedWindow:
    return ReportedWindow(verdict=judge(found), evidence=found)


def gated(found: Evidence, baseline: Evidence | None = None, *failing: Status) -> GatedWindow:
    before = None if baseline is None else reported(baseline)
    return gate(reported(found), "gemm", before, GateTerms(failing or (Status.REJECTED,), None, MachineTerms()))


def test_every_rule_is_the_machines_or_the_benchmarks() -> None:
    assert not MACHINE_RULES & OWN_RULES
    assert {rule.name for rule in RULES} == MACHINE_RULES | OWN_RULES
    assert CLOCK_RULES < MACHINE_RULES


def test_gate_passes_valid_windows() -> None:
    assert gated(made()).outcome is GateOutcome.PASS
    same = gated(made(seed=1), made())
    assert (same.outcome, same.change.split()[0]) == (GateOutcome.PASS, "SAME")


def test_runs_without_a_common_clock_pass_below_the_floor() -> None:
    """Unstamped successive runs are inconclusive, and pass if the possible slowdown is within floor or margin."""

    def unstamped(took_s: float, seed: int) -> Evidence:
        return evidence(timings=times(took_s, seed=seed), host=Host(boot_id="b"), label="gemm")

    same = gated(unstamped(2e-3, 1), unstamped(2e-3, 2))
    assert (same.change.split()[0], same.outcome) == ("INCONCLUSIVE", GateOutcome.PASS)
    assert same.why.startswith("slower by 0.")
    near = gated(unstamped(2.07e-3, 1), unstamped(2e-3, 2))
    assert near.outcome is not GateOutcome.PASS


def test_gate_fails_a_slower_window() -> None:
    slower = gated(made(2.1e-3, seed=1), made())
    assert (slower.outcome, slower.why) == (GateOutcome.FAIL, "slower than the baseline")
    assert slower.change.startswith("SLOWER +5.0")


def test_gate_of_a_window_with_a_neighbour_is_neutral() -> None:
    """A rejected window with a neighbour is neutral, although 5 % slower."""
    spoiled = gated(made(2.1e-3, processes=(OWN, NEIGHBOUR)), made())
    assert spoiled.window.verdict.status is Status.REJECTED
    assert spoiled.outcome is GateOutcome.NEUTRAL
    assert spoiled.why.startswith("contention-process")
    assert gated(made(processes=(OWN, NEIGHBOUR))).outcome is GateOutcome.NEUTRAL


def test_gate_of_a_spoiled_baseline_is_neutral() -> None:
    found = gated(made(2.1e-3), made(processes=(OWN, NEIGHBOUR)))
    assert found.outcome is GateOutcome.NEUTRAL
    assert found.why.startswith("the baseline was spoiled: contention-process")


def test_gate_of_missing_evidence_is_neutral() -> None:
    found = gated(made(processes=None))
    assert found.window.verdict.status is Status.UNPROVEN
    assert found.outcome is GateOutcome.NEUTRAL
    assert found.why.startswith("not proven: ")


def test_gate_of_a_throttled_window_is_neutral() -> None:
    assert gated(made(signals=HOT)).why.startswith("throttle-")
    assert gated(made(signals=HOT)).outcome is GateOutcome.NEUTRAL


@pytest.mark.parametrize(
    ("declared", "rule"),
    [({"tampered": "torch.cuda.Event"}, "timer-tampered"), ({"exception": "ValueError"}, "incomplete-body")],
)
def test_gate_fails_for_the_benchmarks_own_fault(declared: dict[str, str], rule: str) -> None:
    """A replaced timer, or work that ended with an exception, fails even with a neighbour."""
    found = gated(made(declared=declared, processes=(OWN, NEIGHBOUR)))
    assert (found.outcome, found.why.split(":")[0]) == (GateOutcome.FAIL, rule)


def test_named_statuses_fail_only_for_the_benchmarks_fault() -> None:
    """A flag caused by the benchmark fails if --fail-on names flagged; missing evidence stays neutral."""
    flagged = made(declared={"profiler_used": True})
    assert judge(flagged).status is Status.FLAGGED
    assert gated(flagged).outcome is GateOutcome.PASS
    assert gated(flagged, None, Status.FLAGGED).outcome is GateOutcome.FAIL
    assert gated(made(processes=None), None, Status.UNPROVEN).outcome is GateOutcome.NEUTRAL


def test_overall_returns_the_worst_outcome() -> None:
    neutral, slower = gated(made(processes=None)), gated(made(2.1e-3), made())
    assert overall([gated(made()), neutral]) is GateOutcome.NEUTRAL
    assert overall([neutral, slower]) is GateOutcome.FAIL
    assert overall([]) is GateOutcome.PASS


def test_workflow_commands_escape_labels() -> None:
    """A label with a newline and a workflow command stays escaped text on one line."""
    slower = replace(gated(made(2.1e-3), made()), name="x::error::\n::set-env name=A::b, 100%")
    (line,) = gate_formats.workflow_commands([slower, gated(made())])
    assert line.startswith("::error title=gpuwatch%3A x%3A%3Aerror%3A%3A")
    assert line.count("::") == 2
    assert "\n" not in line


def test_summary_has_outcomes_counts_and_changes() -> None:
    windows = [gated(made(2.1e-3), made()), gated(made(processes=None))]
    text = gate_formats.summary(windows)
    assert text.startswith("### gpuwatch: ❌ fail (1 neutral, 1 fail)\n")
    assert "SLOWER \\+5.0" in text
    assert "| ⚪ neutral | gemm |" in text
    assert text.count("<details>") >= 2
    assert gate_formats.outputs(windows) == "outcome=fail\npass_count=0\nneutral_count=1\nfail_count=1\n"


def test_summary_shows_labels_literally() -> None:
    """The summary shows labels literally, also in ``<summary>`` tags, whose text is HTML instead of Markdown."""
    named = replace(gated(made()), name="a|b_c `d`\n<b> @e")
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(gate_formats.summary([named]))
    assert "<summary>a|b_c `d`\\n&lt;b&gt; @\u200be</summary>" in html
    assert "<td>a|b_c `d`\\n&lt;b&gt; @\u200be</td>" in html


@pytest.mark.parametrize("count", [600, 4000])
def test_summary_stays_below_the_runners_limit(count: int) -> None:
    """The summary stays below GitHub's limit of 1 MiB: further windows appear only in the table, and then as a count."""
    one = gated(made(processes=None))
    text = gate_formats.summary([replace(one, name=f"{place} " + "n" * 200) for place in range(count)])
    assert len(text.encode()) < 1 << 20
    left_count = int(found[1]) if (found := re.search(r"\n(\d+) of 4000 windows are left out\n", text)) else 0
    assert (text.count("| ⚪ neutral |") + left_count, left_count > 0) == (count, count == 4000)


def test_exports_omit_spoiled_windows() -> None:
    """github-action-benchmark gets only the valid window, in nanoseconds at one clock; Bencher's value has an interval."""
    windows = [gated(made()), gated(made(processes=None))]
    (entry,) = json.loads(gate_formats.benchmark_action(windows))
    assert (entry["name"], entry["unit"], entry["extra"].split(",")[0]) == ("gemm", "ns", "valid")
    assert entry["value"] == pytest.approx(1.84e6, rel=0.02)
    assert entry["range"].startswith("± ")
    latency = json.loads(gate_formats.bencher(windows))["gemm"]["latency"]
    assert latency["lower_value"] < latency["value"] < latency["upper_value"]
