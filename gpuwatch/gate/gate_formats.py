"""The gate's result for CI systems and trackers: summary, annotations, outputs, two JSON formats."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from annotate.amount_words import duration_text
from annotate.compare.decision import markdown
from annotate.output import report
from annotate.output.budget_words import cards_words
from annotate.output.markup import logged, marked, tagged
from gpuwatch.gate.gate_outcome import GatedWindow, GateOutcome, exportable, overall

_MOST_SUMMARY_BYTES = 900_000  # GitHub accepts 1 MiB per step
_MARKS = {GateOutcome.PASS: "✅ pass", GateOutcome.NEUTRAL: "⚪ neutral", GateOutcome.FAIL: "❌ fail"}
_LEVELS = {GateOutcome.FAIL: "error", GateOutcome.NEUTRAL: "warning"}
_NS = 1e9


def counts_line(windows: Sequence[GatedWindow]) -> str:
    """Return the number of windows by outcome, in one line."""
    counts = Counter(each.outcome for each in windows)
    return ", ".join(f"{counts[each]} {each.value}" for each in GateOutcome if counts[each]) or "no window"


def summary(windows: Sequence[GatedWindow]) -> str:
    """Return Markdown for a step's summary: a table, then folded windows and comparisons, both as far as GitHub's limit allows."""
    lines = [f"### gpuwatch: {_MARKS[overall(windows)]} ({counts_line(windows)})", ""]
    lines += ["| Outcome | Window | Time | Against the baseline | Why |", "|---|---|---|---|---|"]
    for each in windows:
        simulated = " (simulated)" if each.window.verdict.simulated else ""
        cells = (each.name + simulated, number_text(each), each.change, each.why)
        lines.append(f"| {_MARKS[each.outcome]} | " + " | ".join(marked(report.plain(cell)) for cell in cells) + " |")
    kept_count = sum(size <= _MOST_SUMMARY_BYTES for size in accumulate(len(line.encode()) + 1 for line in lines))
    if kept_count < len(lines):
        lines[kept_count:] = [f"\n{len(lines) - kept_count} of {len(windows)} windows are left out"]
    text = "\n".join(lines) + "\n"
    for each in windows:
        parts = [report.markdown(each.window.verdict)] + ([markdown(each.comparison)] if each.comparison is not None else [])
        folded = "\n".join([f"\n<details><summary>{tagged(report.plain(each.name))}</summary>\n", *parts, "</details>\n"])
        if len((text + folded).encode()) > _MOST_SUMMARY_BYTES:
            return f"{text}\n… shortened; `gpuwatch audit` lists all windows\n"
        text += folded
    return text


def number_text(window: GatedWindow) -> str:
    """Return the leading number with its clock and repeatability; empty without one."""
    number = window.number
    if number is None or number.value is None:
        return ""
    value = duration_text(number.value) if number.unit == "s" else f"{number.value:.4g} {number.unit}"
    at = f" at {number.clock_mhz:.0f} MHz" if number.clock_mhz is not None else ""
    ratio = number.repeatability.ratio
    return f"{value}{at}" + (f" ±{100 * ratio:.2g} %{cards_words(number)}" if ratio is not None else "")


def workflow_commands(windows: Sequence[GatedWindow]) -> list[str]:
    """Return GitHub's workflow commands: an error for each failure, a warning for each neutral window."""
    return [
        f"::{_LEVELS[each.outcome]} title={_escaped(f'gpuwatch: {each.name}', is_property=True)}::"
        + _escaped(": ".join(word for word in (each.change, each.why) if word) or each.outcome.value)
        for each in windows
        if each.outcome in _LEVELS
    ]


def _escaped(text: str, *, is_property: bool = False) -> str:
    """Escape text for the runner's command syntax, so that a label cannot inject a command."""
    found = logged(report.plain(text)).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return found.replace(":", "%3A").replace(",", "%2C") if is_property else found


def outputs(windows: Sequence[GatedWindow]) -> str:
    """Return NAME=VALUE lines: the overall outcome, and the number of windows by outcome."""
    counts = Counter(each.outcome for each in windows)
    lines = [f"outcome={overall(windows).value}"] + [f"{each.value}_count={counts[each]}" for each in GateOutcome]
    return "\n".join(lines) + "\n"


def benchmark_action(windows: Sequence[GatedWindow]) -> str:
    """Return github-action-benchmark's ``customSmallerIsBetter`` for the ``exportable`` windows."""
    entries = []
    for each, number in exportable(windows):
        ratio = number.repeatability.ratio
        entry = {"name": each.name, "unit": "ns", "value": (number.value or 0.0) * _NS}
        spread = {} if ratio is None else {"range": f"± {100 * ratio:.2g} %"}
        entries.append(entry | spread | {"extra": f"{each.window.verdict.status.value}, {number_text(each)}"})
    return json.dumps(entries, indent=1, ensure_ascii=True) + "\n"


def bencher(windows: Sequence[GatedWindow]) -> str:
    """Return the Bencher Metric Format, with latency in ns, for the ``exportable`` windows."""
    found = {}
    for each, number in exportable(windows):
        value_ns, ratio = (number.value or 0.0) * _NS, number.repeatability.ratio
        edges = {} if ratio is None else {"lower_value": value_ns * (1 - ratio), "upper_value": value_ns * (1 + ratio)}
        found[each.name] = {"latency": {"value": value_ns} | edges}
    return json.dumps(found, indent=1, ensure_ascii=True) + "\n"
