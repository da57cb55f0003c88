"""The fleet: is every GPU seen, what state is it in, what held it back, and what became of the windows."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from dashboards.panels import GREEN, ORANGE, RED, YELLOW, Cell, Query, board, grid, lines, number, row, timeline
from dashboards.queries import (
    DRIVER,
    GPU,
    KIND_OF_SOURCE,
    RATE,
    SCRAPED,
    SILENT,
    STATES,
    each,
    increase,
    limited_ratio,
    mean_ratio,
    of,
    state,
)  # fmt: skip

UID = "gpuwatch-fleet"
_BAD = ((None, GREEN), (1.0, RED))
_GPU_LINK = "/d/gpuwatch-gpu?var-instance=${__data.fields.Host}&var-uuid=${__data.fields.UUID}&${__url_time_range}"


def fleet() -> dashboard.Dashboard:
    made = board(UID, "gpuwatch / Fleet", "Every GPU of every host: seen or not, idle, busy or held back; and the verdicts.")
    for part in (_now, _gpus, _hosts, _over_time, _verdicts):
        made = part(made)
    return made


def _now(made: dashboard.Dashboard) -> dashboard.Dashboard:
    up, driver, answers = of("up"), of("gpuwatch_up"), of("gpuwatch_gpu_up")
    ever = f"count(last_over_time({answers}[{SILENT}]))"
    lost = f"{ever} - (sum({answers}) or 0 * {ever})"
    oldest = f"max({of('gpuwatch_reading_age_seconds', lane='fast')})"
    return (
        made.with_row(row("Now"))
        .with_panel(number("Source", "Simulated readings are nobody's GPU.", "none", Query(f"max({of('gpuwatch_simulated')})"),
                           looks=KIND_OF_SOURCE))
        .with_panel(number("Hosts not scraped", "Hosts in Prometheus' configuration whose page cannot be had.", "none",
                           Query(f"count({up}) - sum({up})"), steps=_BAD))
        .with_panel(number("Hosts without a driver", "Hosts whose daemon serves a page and finds no GPU driver.", "none",
                           Query(f"count({driver}) - sum({driver})"), steps=_BAD))
        .with_panel(number("GPUs that answer", "GPUs read successfully now.", "none", Query(f"sum({answers})")))
        .with_panel(number("GPUs lost", f"GPUs seen in the last {SILENT} that do not answer now, or whose host is silent.",
                           "none", Query(lost), steps=_BAD))
        .with_panel(number("Oldest answer", "Age of the oldest last answer of any GPU: grows while one is lost or hung.", "s",
                           Query(oldest), steps=((None, GREEN), (2.0, YELLOW), (5.0, RED)), decimals=1))
    )  # fmt: skip


def _gpus(made: dashboard.Dashboard) -> dashboard.Dashboard:
    clock, most = of("gpuwatch_gpu_clock_hertz", domain="sm"), of("gpuwatch_gpu_clock_limit_hertz", domain="sm", kind="max")
    power, limit = of("gpuwatch_gpu_power_watts", kind="average"), of("gpuwatch_gpu_power_limit_watts", kind="enforced")
    used, size = of("gpuwatch_gpu_memory_used_bytes"), of("gpuwatch_gpu_memory_size_bytes")
    cells = (
        Cell(Query(state(), ref="A"), "State", looks=STATES),
        Cell(Query(each(of("gpuwatch_device_info"), f"{GPU}, name"), ref="B")),
        Cell(Query(_share(clock, most), ref="C"), "SM clock of max", "percentunit"),
        Cell(Query(each(limited_ratio(span="5m")), ref="D"), "Held back, 5 min", "percentunit",
             steps=((None, GREEN), (0.01, ORANGE), (0.1, RED))),
        Cell(Query(_share(power, limit), ref="E"), "Power of limit", "percentunit"),
        Cell(Query(each(of("gpuwatch_gpu_temperature_celsius", sensor="core")), ref="F"), "Core", "celsius"),
        Cell(Query(each(of("gpuwatch_gpu_temperature_margin_celsius")), ref="G"), "To slow-down", "celsius",
             steps=((None, RED), (5.0, ORANGE), (15.0, GREEN))),
        Cell(Query(each(of("gpuwatch_gpu_utilization_ratio", unit="gpu")), ref="H"), "Utilisation", "percentunit"),
        Cell(Query(_share(used, size), ref="I"), "Memory", "percentunit"),
        Cell(Query(f"sum by ({GPU}) ({of('gpuwatch_gpu_processes')})", ref="J"), "Processes"),
        Cell(Query(each(of("gpuwatch_reading_age_seconds", lane="fast")), ref="K"), "Last answer", "s",
             steps=((None, GREEN), (2.0, ORANGE), (5.0, RED))),
        Cell(Query(each(of("gpuwatch_gpu_ecc_errors_total", kind="uncorrected")), ref="L"), "Uncorrectable", steps=_BAD),
        Cell(Query(f"sum by ({GPU}) ({of('gpuwatch_gpu_xid_errors_total')})", ref="M"), "Xids", steps=_BAD),
    )  # fmt: skip
    says = (
        "One row a GPU. A GPU that idles says idle; one that cannot be read says lost, stale or not scraped, and its other "
        "cells are empty: an empty cell is a question that has no answer now, never zero. Held back reads low of a host that "
        "Prometheus has scraped for less than its five minutes."
    )
    labels = {"instance": "Host", "gpu": "GPU", "name": "Model", "uuid": "UUID"}
    table = grid("GPUs", says, cells, labels=labels, links={"UUID": _GPU_LINK})
    return made.with_row(row("GPUs")).with_panel(table)


def _share(part: str, whole: str) -> str:
    return f"{each(part)} / on ({GPU}) {each(whole)}"


def _hosts(made: dashboard.Dashboard) -> dashboard.Dashboard:
    begun = f"time() - {of('gpuwatch_daemon_start_timestamp_seconds')}"
    processor = f"rate({of('gpuwatch_daemon_cpu_seconds_total')}[{RATE}])"
    cells = (
        Cell(Query(each(of("up"), "instance"), ref="A"), "Scraped", looks=SCRAPED),
        Cell(Query(each(of("gpuwatch_up"), "instance"), ref="B"), "Driver", looks=DRIVER),
        Cell(Query(each(of("gpuwatch_simulated"), "instance"), ref="C"), "Source", looks=KIND_OF_SOURCE),
        Cell(Query(each(of("gpuwatch_build_info"), "instance, version"), ref="D")),
        Cell(Query(each(of("gpuwatch_gpus", state="answering"), "instance"), ref="E"), "GPUs answering"),
        Cell(Query(each(of("gpuwatch_gpus", state="lost"), "instance"), ref="F"), "GPUs lost", steps=((None, GREEN), (1.0, RED))),
        Cell(Query(each(processor, "instance"), ref="G"), "Daemon, of a core", "percentunit"),
        Cell(Query(each(begun, "instance"), ref="H"), "Running for", "dtdurations"),
        Cell(Query(f"sum by (instance) ({of('gpuwatch_store_bytes')})", ref="I"), "Store", "bytes"),
        Cell(Query(each(of("gpuwatch_windows_in_hand"), "instance"), ref="J"), "Windows in hand"),
    )  # fmt: skip
    says = "One row a host that Prometheus is told to scrape, whether it can be scraped or not."
    return made.with_panel(grid("Hosts", says, cells, labels={"instance": "Host", "version": "Version"}, height=7))


def _over_time(made: dashboard.Dashboard) -> dashboard.Dashboard:
    clocks = mean_ratio("gpuwatch_gpu_clock_ratio", domain="sm", load="busy")
    return (
        made.with_row(row("Over time"))
        .with_panel(timeline("State of every GPU", "Idle, lost and not scraped are different colours; a hole is an hour without a scrape.",
                             STATES, Query(state(), "{{instance}} GPU {{gpu}}")))
        .with_panel(lines("Held back, by reason", "Largest share of time any GPU spent under a reason that is not benign. Reasons "
                          "overlap, so they do not add up.", "percentunit",
                          Query(f"max by (reason) ({limited_ratio()})", "{{reason}}"), width=12, most=1))
        .with_panel(lines("Clock under load", "Mean SM clock of every busy sample over the board's highest: one GPU below its "
                          "siblings is slow.", "percentunit", Query(clocks, "{{instance}} GPU {{gpu}}"), width=12, most=1, least=None))
    )  # fmt: skip


def _verdicts(made: dashboard.Dashboard) -> dashboard.Dashboard:
    windows, findings = of("gpuwatch_windows_total"), of("gpuwatch_findings_total", 'severity!="note"')
    return (
        made.with_row(row("Verdicts"))
        .with_panel(lines("Windows judged, by status", "Windows whose verdict was given in each interval.", "none",
                          Query(f"sum by (status) ({increase(windows, RATE)})", "{{status}}"), width=12, stacked=True))
        .with_panel(grid("What spoils numbers here", "Rules that flagged or rejected windows in the time shown, the commonest first.",
                         (Cell(Query(f"topk(15, sum by (rule, severity) ({increase(findings, '$__range')}) > 0)"), "Windows", decimals=0),),
                         labels={"rule": "Rule", "severity": "Severity"}, width=12, height=8))
    )  # fmt: skip
