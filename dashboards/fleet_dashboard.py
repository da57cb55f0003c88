"""The fleet dashboard: the state of every GPU, the limits on its clock, and the verdicts of the windows."""

from grafana_foundation_sdk.builders import dashboard

from dashboards.fleet_views import GPU_LINK, HELD_BACK, RANGE, SLOWEST_COUNT, energy, siblings, summed
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
    ON_GPU,
    RATE,
    SCRAPED,
    SILENT,
    STATES,
    STATUS_COLORS,
    each,
    increase,
    of,
)

UID = "gpuwatch-fleet"
WORST_COUNT, TIMELINE_COUNT = 50, 16  # nobody reads more rows, even with 2 000 GPUs
STATE = of("gpuwatch:gpu_state:code")
_AMONG_WORST = f"and {ON_GPU} topk({WORST_COUNT}, {of('gpuwatch:gpu_concern:score')})"
_RATIO = LineStyle(most=1)
_BAD = ((None, GREEN), (1.0, RED))


def fleet() -> dashboard.Dashboard:
    made = board(UID, "gpuwatch / Fleet", "The state of every GPU of every host, the limits on its clock, and the verdicts.")
    return fill(made, (), _now(), _gpus(), _hosts(), _over_time(), siblings(), energy(), _verdicts())


def _now() -> tuple[Part, ...]:
    up, driver, answers = of("up"), of("gpuwatch_up"), of("gpuwatch_gpu_up")
    lost = f"sum({STATE} < bool 2)"
    oldest = f"max({of('gpuwatch_reading_age_seconds', lane='fast')})"
    return (
        row("Now"),
        number(
            Cell(Query(f"max({of('gpuwatch_simulated')})"), "Source", looks=KIND_OF_SOURCE),
            "Simulated readings belong to no real GPU.",
        ),
        number(
            Cell(Query(f"count({up}) - sum({up})"), "Hosts not scraped", steps=_BAD),
            "Hosts in Prometheus' configuration whose page cannot be scraped.",
        ),
        number(
            Cell(Query(f"count({driver}) - sum({driver})"), "Hosts without a driver", steps=_BAD),
            "Hosts whose daemon serves a page, but finds no driver or no GPU that answers.",
        ),
        number(Cell(Query(f"sum({answers})"), "GPUs that answer"), "GPUs read successfully now."),
        number(
            Cell(Query(lost), "GPUs lost", steps=_BAD),
            f"GPUs seen in the last {SILENT} that do not answer now, or whose host is not scraped.",
        ),
        number(
            Cell(Query(oldest), "Oldest answer", "s", steps=((None, GREEN), (2.0, YELLOW), (5.0, RED)), decimals=1),
            "Largest age of a GPU's last answer; grows while a GPU is lost or hangs.",
        ),
    )


def _gpus() -> tuple[Part, ...]:
    clock, most = of("gpuwatch_gpu_clock_hertz", domain="sm"), of("gpuwatch_gpu_clock_limit_hertz", domain="sm", kind="max")
    power, limit = of("gpuwatch_gpu_power_watts", kind="average"), of("gpuwatch_gpu_power_limit_watts", kind="enforced")
    used, size = of("gpuwatch_gpu_memory_used_bytes"), of("gpuwatch_gpu_memory_size_bytes")
    cells = (
        Cell(Query(_worst(STATE)), "State", looks=STATES),
        Cell(Query(_concern()), "Concern", decimals=0),
        Cell(Query(_share(clock, most)), "Clock of max", "percentunit"),
        Cell(
            Query(_worst(HELD_BACK)),
            "Held back",
            "percentunit",
            steps=((None, GREEN), (0.01, ORANGE), (0.1, RED)),
        ),
        Cell(Query(_share(power, limit)), "Power of limit", "percentunit"),
        Cell(Query(_worst(of("gpuwatch_gpu_temperature_celsius", sensor="core"))), "Core", "celsius"),
        Cell(
            Query(_worst(of("gpuwatch_gpu_temperature_margin_celsius"))),
            "To slow-down",
            "celsius",
            steps=((None, RED), (5.0, ORANGE), (15.0, GREEN)),
        ),
        Cell(Query(_worst(of("gpuwatch_gpu_utilization_ratio", unit="gpu"))), "Use", "percentunit"),
        Cell(Query(_share(used, size)), "Memory", "percentunit"),
        Cell(Query(f"sum by ({GPU}) ({of('gpuwatch_gpu_processes')} {_AMONG_WORST})"), "Processes"),
        Cell(
            Query(_worst(of("gpuwatch_reading_age_seconds", lane="fast"))),
            "Last answer",
            "s",
            steps=((None, GREEN), (2.0, ORANGE), (5.0, RED)),
        ),
        Cell(Query(_worst(of("gpuwatch_gpu_ecc_errors_total", kind="uncorrected"))), "Uncorrectable", steps=_BAD),
        Cell(Query(_worst(of("gpuwatch:gpu_xids:count"))), "Xids", steps=_BAD),
    )
    says = (
        f"The {WORST_COUNT} GPUs to look at first: lost, not scraped, stale, limited, of unobserved use, with uncorrectable memory "
        "errors, or slower than their siblings. Choose a host to see all of its GPUs. A GPU that cannot be read shows lost, stale or not scraped. "
        "An empty cell means no current answer, never zero. Held back is a share of the last five minutes."
    )
    labels = {"instance": "Host", "gpu": "GPU", "name": "Model", "uuid": "UUID"}
    return (row("GPUs"), grid("GPUs", says, cells, labels=labels, links={"UUID": GPU_LINK}, highest_first="Concern"))


def _concern() -> str:
    """Build the rank of the GPUs to look at first, with the model if the host is scraped."""
    worst = f"topk({WORST_COUNT}, {of('gpuwatch:gpu_concern:score')})"
    named = f"{worst} * {ON_GPU} group_left (name) {of('gpuwatch_device_info')}"
    return each(f"{named} or {ON_GPU} {worst}", f"{GPU}, name")


def _worst(expression: str, by: str = GPU) -> str:
    return each(f"{expression} {_AMONG_WORST}", by)


def _share(part: str, whole: str) -> str:
    return f"{_worst(part)} / on ({GPU}) {each(whole)}"


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
    says = "One row per host in Prometheus' configuration, reachable or not."
    return (grid("Hosts", says, cells, labels={"instance": "Host", "version": "Version"}, size=(24, 7)),)


def _over_time() -> tuple[Part, ...]:
    asked_first = f"topk({TIMELINE_COUNT}, max_over_time({of('gpuwatch:gpu_concern:score')}[{RANGE}] @ end()))"
    return (
        row("Over time"),
        lines(
            "GPUs, by state",
            "Number of GPUs by state. Lost and not scraped are separate states; a gap is time without recorded series.",
            "none",
            Query(f"sum by (state) ({of('gpuwatch:gpus_by_state:count')})", "{{state}}"),
            size=(12, 8),
            style=LineStyle(is_stacked=True, colors={look.text: look.color for look in STATES.values()}),
        ),
        lines(
            "Held back, by reason",
            "Largest share of time any GPU spent under a reason that is not benign. Reasons overlap, so the shares do not add up.",
            "percentunit",
            Query(f"max by (reason) ({of('gpuwatch:reason_held_back:max_ratio5m')})", "{{reason}}"),
            size=(12, 8),
            style=_RATIO,
        ),
        timeline(
            "State of the GPUs to look at first",
            f"The {TIMELINE_COUNT} GPUs with the most concern in the time shown; choose two hosts of 8 GPUs to see every GPU. Idle, lost "
            f"and not scraped have different colours. A gap is time without recorded series, or more than {SILENT} after the last scrape.",
            STATES,
            Query(f"max by ({GPU}) ({STATE} and {ON_GPU} {asked_first})", "{{instance}} GPU {{gpu}}"),
        ),
    )


def _verdicts() -> tuple[Part, ...]:
    windows, unfit = of("gpuwatch_windows_total"), of("gpuwatch_windows_total", 'status=~"flagged|rejected"')
    found = of("gpuwatch:findings:rate5m", 'severity!="note"')
    steps = f"scalar(count_over_time(vector(1)[{RANGE}:{RATE}]))"
    spoilt = f"topk({SLOWEST_COUNT}, sum by (instance) ({increase(unfit, RANGE)}) > 0)"
    judged = f"sum by (instance) ({increase(windows, RANGE)}) and on (instance) {spoilt}"
    return (
        row("Verdicts"),
        lines(
            "Windows judged, by status",
            "Windows judged in each interval.",
            "none",
            Query(f"sum by (status) ({increase(windows, RATE)})", "{{status}}"),
            size=(8, 8),
            style=LineStyle(is_stacked=True, colors=STATUS_COLORS),
        ),
        grid(
            "What spoils numbers here",
            "Rules with findings other than notes in the time shown, the most frequent first. Counts are approximate, because findings are recorded as rates of five minutes.",
            (
                Cell(
                    Query(f"topk(15, ceil(sum by (rule, severity) ({summed(found)}) * $__range_s / {steps}))"),
                    "Windows",
                    decimals=0,
                ),
            ),
            labels={"rule": "Rule", "severity": "Severity"},
            size=(8, 8),
            highest_first="Windows",
        ),
        grid(
            "Where windows are not fit for use",
            "Hosts with the most flagged or rejected windows in the time shown. Tags such as team and job are never labels of "
            "metrics. For figures by team, export the windows and run gpuwatch fleet invalid-by-team (docs/FLEET.md).",
            (
                Cell(Query(spoilt), "Flagged or rejected", decimals=0, steps=_BAD),
                Cell(Query(judged), "Judged", decimals=0),
            ),
            labels={"instance": "Host"},
            size=(8, 8),
            highest_first="Flagged or rejected",
        ),
    )
