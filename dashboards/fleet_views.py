"""Views of the fleet dashboard: each GPU's clock against its siblings, and the energy of idle GPUs."""

from dashboards.panels import GREEN, ORANGE, RED, YELLOW, Cell, LineStyle, Part, Query, grid, lines, number, row
from dashboards.queries import GPU, ON_GPU, RATE, each, increase, of

GPU_LINK = "/d/gpuwatch-gpu?var-instance=${__data.fields.Host}&var-uuid=${__data.fields.UUID}&${__url_time_range}"
RANGE = "$__range"
SLOWEST_COUNT = 10  # nobody reads more rows, even with 2 000 GPUs
POWER, HELD_BACK = of("gpuwatch:gpu_power:watts5m"), of("gpuwatch:gpu_held_back:ratio5m")
_KWH_J = "3.6e6"


def siblings() -> tuple[Part, ...]:
    against, clock = of("gpuwatch:gpu_clock_against_siblings:ratio5m"), of("gpuwatch:gpu_clock_under_load:ratio5m")
    slowest = f"bottomk({SLOWEST_COUNT}, avg_over_time({against}[{RANGE}] @ end()))"
    among = f"and {ON_GPU} bottomk({SLOWEST_COUNT}, {against})"
    power = f"{each(f'{POWER} {among}')} / on ({GPU}) {each(of('gpuwatch_gpu_power_limit_watts', kind='enforced'))}"
    cells = (
        Cell(
            Query(each(f"{against} {among}")),
            "Clock against siblings",
            "percentunit",
            steps=((None, RED), (0.95, ORANGE), (0.98, GREEN)),
        ),
        Cell(Query(each(f"{of('gpuwatch_device_info')} {among}", f"{GPU}, name"))),
        Cell(Query(each(f"{clock} {among}")), "Clock of max", "percentunit"),
        Cell(Query(power), "Power of limit", "percentunit"),
        Cell(Query(each(f"{of('gpuwatch_gpu_activity_ratio', unit='sm')} {among}")), "SM activity", "percentunit"),
        Cell(Query(each(f"{HELD_BACK} {among}")), "Held back", "percentunit"),
    )
    return (
        row("Clock against siblings"),
        lines(
            "Clock under load",
            "Median, 5th percentile and minimum over all GPUs of the mean SM clock under load, relative to the board's highest clock.",
            "percentunit",
            Query(f"quantile(0.5, {clock})", "median"),
            Query(f"quantile(0.05, {clock})", "lowest 5 %"),
            Query(f"min({clock})", "lowest"),
            size=(12, 8),
            style=LineStyle(least=None, most=1),
        ),
        lines(
            "Slowest against their siblings",
            f"The {SLOWEST_COUNT} GPUs with the lowest clock under load, relative to the median of all busy GPUs of their model.",
            "percentunit",
            Query(f"max by ({GPU}) ({against} and {ON_GPU} {slowest})", "{{instance}} GPU {{gpu}}"),
            size=(12, 8),
            style=LineStyle(least=None),
        ),
        grid(
            "Slower than their siblings",
            "The GPUs with the lowest ratio now. A low clock at the power limit with full activity means a costlier kernel or a poor board: compare "
            "GPUs with the same work. A low clock below the limit means heat, a lock or a board that protects itself.",
            cells,
            labels={"instance": "Host", "gpu": "GPU", "name": "Model", "uuid": "UUID"},
            size=(24, 8),
            links={"UUID": GPU_LINK},
        ),
    )


def energy() -> tuple[Part, ...]:
    by_use, counter = of("gpuwatch:power_by_use:watts5m"), of("gpuwatch_gpu_energy_joules_total")
    idle = of("gpuwatch:power_by_use:watts5m", 'use=~"idle.*"')
    share = f"sum by (instance) ({summed(idle)}) / sum by (instance) ({summed(by_use)})"
    hosts = f"sum by (instance) ({increase(counter, RANGE)}) * ({share})"
    held = of("gpuwatch:gpus_by_use:count", use="idle with a process")
    return (
        row("Energy"),
        number(Cell(Query(f"sum({by_use})"), "Power now", "watt"), "Power of all GPUs, a mean of five minutes.", width=6),
        number(
            Cell(Query(f"sum({increase(counter, RANGE)}) / {_KWH_J}"), "Energy", "kwatth", decimals=1),
            "Energy of all GPUs in the time shown, by the driver's counters.",
            width=6,
        ),
        number(
            Cell(
                Query(f"sum({summed(idle)}) / sum({summed(by_use)})"),
                "Spent idle",
                "percentunit",
                steps=((None, GREEN), (0.2, YELLOW), (0.5, ORANGE)),
            ),
            "Share of the energy in the time shown that GPUs drew without a kernel.",
            width=6,
        ),
        number(
            Cell(Query(f"sum({held}) or 0 * sum({of('gpuwatch:gpus_by_use:count')})"), "GPUs held idle"),
            "GPUs with a process and without a running kernel.",
            width=6,
        ),
        lines(
            "Power, by use",
            "An idle GPU with a process is allocated but unused; an idle, empty GPU is free.",
            "watt",
            Query(f"sum by (use) ({by_use})", "{{use}}"),
            size=(14, 8),
            style=LineStyle(is_stacked=True),
        ),
        grid(
            "Hosts that waste most while idle",
            f"Energy that the host's GPUs drew without a kernel in the time shown; the {SLOWEST_COUNT} highest.",
            (Cell(Query(f"topk({SLOWEST_COUNT}, {hosts} / {_KWH_J})"), "Idle energy", "kwatth", decimals=2),),
            labels={"instance": "Host"},
            size=(10, 8),
            highest_first="Idle energy",
        ),
    )


def summed(recorded: str) -> str:
    """Sum a recorded series at the steps of the time shown.  A mean would be too high, because the series has gaps."""
    return f"sum_over_time(({recorded})[{RANGE}:{RATE}])"
