"""The windows: what verdicts were given, by which rules, how long windows and judging took, and when windows were open."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from dashboards.panels import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    YELLOW,
    Cell,
    Query,
    annotation,
    board,
    grid,
    lines,
    number,
    row,
)  # fmt: skip
from dashboards.queries import RATE, increase, of, quantile

UID = "gpuwatch-windows"
RANGE = "$__range"
_COLORS = {"valid": GREEN, "unproven": PURPLE, "flagged": ORANGE, "rejected": RED}
_MEANS = {
    "valid": "Nothing was found that spoils the number, and the evidence was complete.",
    "unproven": "Evidence that the claim requires was missing: nobody knows.",
    "flagged": "A hazard limits what the number may be used for.",
    "rejected": "A hazard makes the number wrong.",
}


def windows() -> dashboard.Dashboard:
    made = board(UID, "gpuwatch / Windows", "What became of measured windows: verdicts, the rules behind them, and when.")
    for part in (_annotations, _now, _verdicts, _findings, _work):
        made = part(made)
    return made


def _annotations(made: dashboard.Dashboard) -> dashboard.Dashboard:
    """Windows have no names here: names are text of users, and stay in the store (``gpuwatch audit``)."""
    rejected = f"sum by (instance) ({increase(of('gpuwatch_windows_total', status='rejected'), '30s')}) > 0"
    return (
        made.annotation(annotation("Windows in hand", f"{of('gpuwatch_windows_in_hand')} > 0", BLUE,
                                   "a window is open or being judged on {{instance}}"))
        .annotation(annotation("Windows rejected", rejected, RED,
                               "a window was rejected on {{instance}}"))
        .annotation(annotation("Xid", f"time() - {of('gpuwatch_gpu_xid_last_timestamp_seconds')} < 30", PURPLE,
                               "Xid {{xid}} on {{instance}} GPU {{gpu}}"))
    )  # fmt: skip


def _now(made: dashboard.Dashboard) -> dashboard.Dashboard:
    made = made.with_row(row("In the time shown"))
    for status, means in _MEANS.items():
        judged = f"sum({increase(of('gpuwatch_windows_total', status=status), RANGE)})"
        made = made.with_panel(
            number(status.capitalize(), means, "none", Query(judged), steps=((None, GREY), (0.5, _COLORS[status])), decimals=0)
        )
    share = _share_of("rejected|flagged", RANGE)
    return (
        made.with_panel(number("Not fit for use", "Share of judged windows that were flagged or rejected. Without a judged window "
                               "there is no share.", "percentunit", Query(share), steps=((None, GREEN), (0.05, YELLOW), (0.2, RED))))
        .with_panel(number("In hand", "Windows open, closing or being judged now.", "none",
                           Query(f"sum({of('gpuwatch_windows_in_hand')})")))
    )  # fmt: skip


def _verdicts(made: dashboard.Dashboard) -> dashboard.Dashboard:
    judged = of("gpuwatch_windows_total")
    hosts = tuple(
        Cell(Query(f"sum by (instance) ({increase(of('gpuwatch_windows_total', status=status), RANGE)})", ref=ref), status.capitalize(),
             steps=((None, GREY), (0.5, _COLORS[status])), decimals=0)
        for ref, status in zip("ABCD", _MEANS, strict=True)
    )  # fmt: skip
    return (
        made.with_row(row("Verdicts"))
        .with_panel(lines("Windows judged, by status", "Windows whose verdict was given in each interval; zero is a daemon that "
                          "judged nothing, a hole one that was not scraped.", "none",
                          Query(f"sum by (status) ({increase(judged, RATE)})", "{{status}}"), width=12, stacked=True, colors=_COLORS))
        .with_panel(lines("Flagged or rejected, share", "Of the windows judged in the ten minutes before.", "percentunit",
                          Query(_share_of("rejected|flagged", "10m"), "flagged or rejected"),
                          Query(_share_of("unproven", "10m"), "unproven", ref="B"), width=12, most=1))
        .with_panel(grid("By host", "Windows judged in the time shown, a row a host.", hosts, labels={"instance": "Host"}, height=6))
    )  # fmt: skip


def _findings(made: dashboard.Dashboard) -> dashboard.Dashboard:
    found, counted = of("gpuwatch_findings_total"), of("gpuwatch_findings_total", 'severity!="note"')
    table = Cell(Query(f"sort_desc(sum by (rule, severity) ({increase(found, RANGE)}) > 0)"), "Windows and GPUs", decimals=0)
    return (
        made.with_row(row("Findings"))
        .with_panel(lines("Findings, by rule", "Hazards found in each interval, notes left out.", "none",
                          Query(f"sum by (rule) ({increase(counted, RATE)})", "{{rule}}"),
                          width=14, height=10, stacked=True))
        .with_panel(grid("Rules that found something", "In the time shown, the commonest first; gpuwatch explain RULE says what to "
                         "do.", (table,), labels={"rule": "Rule", "severity": "Severity"}, width=10, height=10))
    )  # fmt: skip


def _work(made: dashboard.Dashboard) -> dashboard.Dashboard:
    length = increase(of("gpuwatch_window_duration_seconds_bucket"), "10m")
    judging = increase(of("gpuwatch_judging_seconds_bucket"), "10m")
    return (
        made.with_row(row("Windows and the judge"))
        .with_panel(lines("Length of windows", "Median of the windows judged in the ten minutes before, by status: rejected ones "
                          "that are all short are a harness that measures too little.", "s",
                          Query(quantile(0.5, length, "status"), "{{status}}"), width=12, colors=_COLORS))
        .with_panel(lines("Time a verdict took", "From a window's end to its verdict, without the tail of readings it waits for.",
                          "s", Query(quantile(0.5, judging), "median"),
                          Query(quantile(0.95, judging), "95 %", ref="B"), width=12))
        .with_panel(lines("Windows in hand", "Open, closing or being judged, by host.", "none",
                          Query(of("gpuwatch_windows_in_hand"), "{{instance}}"), height=6))
    )  # fmt: skip


def _share_of(statuses: str, span: str) -> str:
    chosen = of("gpuwatch_windows_total", f'status=~"{statuses}"')
    return f"sum({increase(chosen, span)}) / (sum({increase(of('gpuwatch_windows_total'), span)}) > 0)"
