"""The fleet: is every GPU seen, what state is it in, what held it back, and what became of the windows."""

from grafana_foundation_sdk.builders import dashboard

from dashboards.panels import (
    GREEN,
    ORANGE,
    RED,
    YELLOW,
    Cell,
    LineStyle,
    Part,
    Query,
    board,
    fill,
    grid,
    lines,
    number,
    row,
    timeline,
)
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
)

UID = "gpuwatch-fleet"
_RATIO = LineStyle(most=1)
_BAD = ((None, GREEN), (1.0, RED))
_GPU_LINK = "/d/gpuwatch-gpu?var-instance=${__data.fields.Host}&var-uuid=${__data.fields.UUID}&${__url_time_range}"


def fleet() -> dashboard.Dashboard:
    made = board(UID, "gpuwatch / Fleet", "Every GPU of every host: seen or not, idle, busy or held back; and the verdicts.")
    return fill(made, (), _now(), _gpus(), _hosts(), _over_time(), _verdicts())


def _now() -> tuple[Part, ...]:
    up, driver, answers = of("up"), of("gpuwatch_up"), of("gpuwatch_gpu_up")
    ever = f"count(last_over_time({answers}[{SILENT}]))"
    lost = f"{ever} - (sum({answers}) or 0 * {ever})"
    oldest = f"max({of('gpuwatch_reading_age_seconds', lane='fast')})"
    return (
        row("Now"),
        number(
            Cell(Query(f"max({of('gpuwatch_simulated')})"), "Source", looks=KIND_OF_SOURCE),
            "Simulated readings are nobody's GPU.",
        ),
        number(
            Cell(Query(f"count({up}) - sum({up})"), "Hosts not scraped", steps=_BAD),
            "Hosts in Prometheus' configuration whose page cannot be had.",
        ),
        number(
            Cell(Query(f"count({driver}) - sum({driver})"), "Hosts without a driver", steps=_BAD),
            "Hosts whose daemon serves a page and finds no GPU driver.",
        ),
        number(Cell(Query(f"sum({answers})"), "GPUs that answer"), "GPUs read successfully now."),
        number(
            Cell(Query(lost), "GPUs lost", steps=_BAD),
            f"GPUs seen in the last {SILENT} that do not answer now, or whose host is silent.",
        ),
        number(
            Cell(Query(oldest), "Oldest answer", "s", steps=((None, GREEN), (2.0, YELLOW), (5.0, RED)), decimals=1),
            "Age of the oldest last answer of any GPU: grows while one is lost or hung.",
        ),
    )


def _gpus() -> tuple[Part, ...]:
    clock, most = of("gpuwatch_gpu_clock_hertz", domain="sm"), of("gpuwatch_gpu_clock_limit_hertz", domain="sm", kind="max")
    power, limit = of("gpuwatch_gpu_power_watts", kind="average"), of("gpuwatch_gpu_power_limit_watts", kind="enforced")
    used, size = of("gpuwatch_gpu_memory_used_bytes"), of("gpuwatch_gpu_memory_size_bytes")
    cells = (
        Cell(Query(state()), "State", looks=STATES),
        Cell(Query(each(of("gpuwatch_device_info"), f"{GPU}, name"))),
        Cell(Query(_share(clock, most)), "SM clock of max", "percentunit"),
        Cell(
            Query(each(limited_ratio(span="5m"))),
            "Held back, 5 min",
            "percentunit",
            steps=((None, GREEN), (0.01, ORANGE), (0.1, RED)),
        ),
        Cell(Query(_share(power, limit)), "Power of limit", "percentunit"),
        Cell(Query(each(of("gpuwatch_gpu_temperature_celsius", sensor="core"))), "Core", "celsius"),
        Cell(
            Query(each(of("gpuwatch_gpu_temperature_margin_celsius"))),
            "To slow-down",
            "celsius",
            steps=((None, RED), (5.0, ORANGE), (15.0, GREEN)),
        ),
        Cell(Query(each(of("gpuwatch_gpu_utilization_ratio", unit="gpu"))), "Utilisation", "percentunit"),
        Cell(Query(_share(used, size)), "Memory", "percentunit"),
        Cell(Query(f"sum by ({GPU}) ({of('gpuwatch_gpu_processes')})"), "Processes"),
        Cell(
            Query(each(of("gpuwatch_reading_age_seconds", lane="fast"))),
            "Last answer",
            "s",
            steps=((None, GREEN), (2.0, ORANGE), (5.0, RED)),
        ),
        Cell(Query(each(of("gpuwatch_gpu_ecc_errors_total", kind="uncorrected"))), "Uncorrectable", steps=_BAD),
        Cell(Query(f"sum by ({GPU}) ({of('gpuwatch_gpu_xid_errors_total')})"), "Xids", steps=_BAD),
    )
    says = (
        "One row a GPU. A GPU that idles says idle; one that cannot be read says lost, stale or not scraped, and its other "
        "cells are empty: an empty cell is a question that has no answer now, never zero. Held back reads low of a host that "
        "Prometheus has scraped for less than its five minutes."
    )
    labels = {"instance": "Host", "gpu": "GPU", "name": "Model", "uuid": "UUID"}
    table = grid("GPUs", says, cells, labels=labels, links={"UUID": _GPU_LINK})
    return (
        row("GPUs"),
        table,
    )


def _share(part: str, whole: str) -> str:
    return f"{each(part)} / on ({GPU}) {each(whole)}"


def _hosts() -> tuple[Part, ...]:
    begun = f"time() - {of('gpuwatch_daemon_start_timestamp_seconds')}"
    processor = f"rate({of('gpuwatch_daemon_cpu_seconds_total')}[{RATE}])"
    cells = (
        Cell(Query(each(of("up"), "instance")), "Scraped", looks=SCRAPED),
        Cell(Query(each(of("gpuwatch_up"), "instance")), "Driver", looks=DRIVER),
        Cell(Query(each(of("gpuwatch_simulated"), "instance")), "Source", looks=KIND_OF_SOURCE),
        Cell(Query(each(of("gpuwatch_build_info"), "instance, version"))),
        Cell(Query(each(of("gpuwatch_gpus", state="answering"), "instance")), "GPUs answering"),
        Cell(Query(each(of("gpuwatch_gpus", state="lost"), "instance")), "GPUs lost", steps=((None, GREEN), (1.0, RED))),
        Cell(Query(each(processor, "instance")), "Daemon, of a core", "percentunit"),
        Cell(Query(each(begun, "instance")), "Running for", "dtdurations"),
        Cell(Query(f"sum by (instance) ({of('gpuwatch_store_bytes')})"), "Store", "bytes"),
        Cell(Query(each(of("gpuwatch_windows_in_hand"), "instance")), "Windows in hand"),
    )
    says = "One row a host that Prometheus is told to scrape, whether it can be scraped or not."
    return (grid("Hosts", says, cells, labels={"instance": "Host", "version": "Version"}, size=(24, 7)),)


def _over_time() -> tuple[Part, ...]:
    clocks = mean_ratio("gpuwatch_gpu_clock_ratio", domain="sm", load="busy")
    return (
        row("Over time"),
        timeline(
            "State of every GPU",
            "Idle, lost and not scraped are different colours; a hole is an hour without a scrape.",
            STATES,
            Query(state(), "{{instance}} GPU {{gpu}}"),
        ),
        lines(
            "Held back, by reason",
            "Largest share of time any GPU spent under a reason that is not benign. Reasons overlap, so they do not add up.",
            "percentunit",
            Query(f"max by (reason) ({limited_ratio()})", "{{reason}}"),
            size=(12, 8),
            style=_RATIO,
        ),
        lines(
            "Clock under load",
            "Mean SM clock of every busy sample over the board's highest: one GPU below its siblings is slow.",
            "percentunit",
            Query(clocks, "{{instance}} GPU {{gpu}}"),
            size=(12, 8),
            style=LineStyle(least=None, most=1),
        ),
    )


def _verdicts() -> tuple[Part, ...]:
    windows, findings = of("gpuwatch_windows_total"), of("gpuwatch_findings_total", 'severity!="note"')
    return (
        row("Verdicts"),
        lines(
            "Windows judged, by status",
            "Windows whose verdict was given in each interval.",
            "none",
            Query(f"sum by (status) ({increase(windows, RATE)})", "{{status}}"),
            size=(12, 8),
            style=LineStyle(is_stacked=True),
        ),
        grid(
            "What spoils numbers here",
            "Rules that flagged or rejected windows in the time shown, the commonest first.",
            (Cell(Query(f"topk(15, sum by (rule, severity) ({increase(findings, '$__range')}) > 0)"), "Windows", decimals=0),),
            labels={"rule": "Rule", "severity": "Severity"},
            size=(12, 8),
        ),
    )
