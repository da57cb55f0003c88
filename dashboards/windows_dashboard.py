"""The dashboard of windows: verdicts, their rules, the lengths of windows and judging, and the times of open windows."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import AnnotationQuery

from dashboards.panels import (
    GREEN,
    GREY,
    PURPLE,
    RED,
    YELLOW,
    Cell,
    LineStyle,
    Part,
    Query,
    annotation,
    board,
    fill,
    grid,
    lines,
    number,
    row,
)
from dashboards.queries import OPEN_WINDOWS, RATE, STATUS_COLORS, increase, of, quantile

UID = "gpuwatch-windows"
RANGE = "$__range"
_MEANS = {
    "valid": "The evidence was complete, and the claimed numbers are within the tolerance.",
    "unproven": "Evidence that the claim requires was missing.",
    "flagged": "A bound exceeds the tolerance, the repeatability exceeds a demanded precision, or a finding or broken proof flags.",
    "rejected": "The number is off by more than five tolerances, or is not what it claims to be.",
}


def windows() -> dashboard.Dashboard:
    made = board(UID, "gpuwatch / Windows", "Outcomes of measured windows: verdicts, their rules, and times.")
    return fill(made, _annotations(), _now(), _verdicts(), _findings(), _work())


def _annotations() -> tuple[Builder[AnnotationQuery], ...]:
    """Build the annotations without windows' names: names are users' text, and stay in the store (``gpuwatch audit``)."""
    rejected = f"sum by (instance) ({increase(of('gpuwatch_windows_total', status='rejected'), '30s')}) > 0"
    return (
        annotation(*OPEN_WINDOWS),
        annotation("Windows rejected", rejected, RED, "a window was rejected on {{instance}}"),
        annotation(
            "Xid",
            f"time() - {of('gpuwatch_gpu_xid_last_timestamp_seconds')} < 30",
            PURPLE,
            "Xid {{xid}} on {{instance}} GPU {{gpu}}",
        ),
    )


def _now() -> tuple[Part, ...]:
    share = _share_of("rejected|flagged", RANGE)
    return (
        row("In the time shown"),
        *(number(_judged(status, f"sum({_judged_count(status)})"), means) for status, means in _MEANS.items()),
        number(
            Cell(Query(share), "Not fit for use", "percentunit", steps=((None, GREEN), (0.05, YELLOW), (0.2, RED))),
            "Share of judged windows that were flagged or rejected. Without a judged window there is no share.",
        ),
        number(Cell(Query(f"sum({of('gpuwatch_windows_in_hand')})"), "In hand"), "Windows open, closing or being judged now."),
    )


def _verdicts() -> tuple[Part, ...]:
    judged = of("gpuwatch_windows_total")
    hosts = tuple(_judged(status, f"sum by (instance) ({_judged_count(status)})") for status in _MEANS)
    return (
        row("Verdicts"),
        lines(
            "Windows judged, by status",
            "Windows judged in each interval; zero is an interval without judged windows, and a gap is an interval without scrapes.",
            "none",
            Query(f"sum by (status) ({increase(judged, RATE)})", "{{status}}"),
            size=(12, 8),
            style=LineStyle(is_stacked=True, colors=STATUS_COLORS),
        ),
        lines(
            "Flagged or rejected, share",
            "Share of the windows judged in the previous ten minutes.",
            "percentunit",
            Query(_share_of("rejected|flagged", "10m"), "flagged or rejected"),
            Query(_share_of("unproven", "10m"), "unproven"),
            size=(12, 8),
            style=LineStyle(most=1, colors={"flagged or rejected": RED, "unproven": PURPLE}),
        ),
        grid(
            "By host", "Windows judged in the time shown, one row per host.", hosts, labels={"instance": "Host"}, size=(24, 6)
        ),
    )


def _findings() -> tuple[Part, ...]:
    found, counted = of("gpuwatch_findings_total"), of("gpuwatch_findings_total", 'severity!="note"')
    table = Cell(Query(f"sort_desc(sum by (rule, severity) ({increase(found, RANGE)}) > 0)"), "Windows and GPUs", decimals=0)
    seen = f"sum by (rule) (increase({counted}[{RANGE}] @ end())) > 0"  # the daemon exports every rule from zero
    return (
        row("Findings"),
        lines(
            "Findings, by rule",
            "Hazards found in each interval, without notes; only rules with a finding in the time shown.",
            "none",
            Query(f"sum by (rule) ({increase(counted, RATE)}) and on (rule) ({seen})", "{{rule}}"),
            size=(14, 10),
            style=LineStyle(is_stacked=True),
        ),
        grid(
            "Rules with findings",
            "Rules with findings in the time shown, the most frequent first; gpuwatch explain RULE gives the remedy.",
            (table,),
            labels={"rule": "Rule", "severity": "Severity"},
            size=(10, 10),
        ),
    )


def _work() -> tuple[Part, ...]:
    length = increase(of("gpuwatch_window_duration_seconds_bucket"), "10m")
    judging = increase(of("gpuwatch_judging_seconds_bucket"), "10m")
    return (
        row("Windows and the judge"),
        lines(
            "Length of windows",
            "Median of the windows judged in the previous ten minutes, by status. If all rejected "
            "windows are short, the harness measures too little.",
            "s",
            Query(quantile(0.5, length, "status"), "{{status}}"),
            size=(12, 8),
            style=LineStyle(colors=STATUS_COLORS),
        ),
        lines(
            "Time a verdict took",
            "Time to judge a window, including the wait for the worker.",
            "s",
            Query(quantile(0.5, judging), "median"),
            Query(quantile(0.95, judging), "95 %"),
            size=(12, 8),
        ),
        lines(
            "Windows in hand",
            "Windows open, closing or being judged, by host.",
            "none",
            Query(of("gpuwatch_windows_in_hand"), "{{instance}}"),
            size=(24, 6),
        ),
    )


def _judged_count(status: str) -> str:
    return increase(of("gpuwatch_windows_total", status=status), RANGE)


def _judged(status: str, expr: str) -> Cell:
    return Cell(Query(expr), status.capitalize(), steps=((None, GREY), (0.5, STATUS_COLORS[status])), decimals=0)


def _share_of(statuses: str, span: str) -> str:
    chosen = of("gpuwatch_windows_total", f'status=~"{statuses}"')
    return f"sum({increase(chosen, span)}) / (sum({increase(of('gpuwatch_windows_total'), span)}) > 0)"
