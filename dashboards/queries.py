"""The PromQL that several panels share: selectors, the state of a GPU, and the growth of a counter.

No query ends in ``or vector(0)``: without a scrape a figure must be absent, never a reassuring zero.
"""

from collections.abc import Mapping

from dashboards.panels import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, YELLOW, ValueStyle

STALE_S = 5  # a hundred periods of a busy GPU's fast lane (50 ms), and five of a resting GPU's (0.9 s)
SILENT = "1h"  # time for which a GPU without scrapes stays on the fleet's table

HOSTS = 'job=~"$job",instance=~"$instance"'
ONE_GPU = f'{HOSTS},uuid="$uuid"'
RATE = "$__rate_interval"
GPU = "instance, uuid, gpu"
ON_GPU = "on (job, instance, uuid)"
CLASSES = "gpuwatch_clock_event_reason_info"

# Names of a GPU's states by number; ``state`` decides between several.
STATES: Mapping[int, ValueStyle] = {
    0: ValueStyle("not scraped", PURPLE),
    1: ValueStyle("lost", RED),
    2: ValueStyle("stale", RED),
    3: ValueStyle("idle", BLUE),
    4: ValueStyle("busy", GREEN),
    5: ValueStyle("busy, power-capped", YELLOW),
    6: ValueStyle("limited", ORANGE),
    7: ValueStyle("limited by hardware", RED),
    8: ValueStyle("answers, use not observed", GREY),
}
STATUS_COLORS: Mapping[str, str] = {"valid": GREEN, "unproven": PURPLE, "flagged": ORANGE, "rejected": RED}
SCRAPED: Mapping[int, ValueStyle] = {0: ValueStyle("not scraped", PURPLE), 1: ValueStyle("yes", GREEN)}
DRIVER: Mapping[int, ValueStyle] = {0: ValueStyle("none", RED), 1: ValueStyle("answers", GREEN)}
KIND_OF_SOURCE: Mapping[int, ValueStyle] = {0: ValueStyle("not simulated", GREEN), 1: ValueStyle("SIMULATED", ORANGE)}


def of(metric: str, *matchers: str, among: str = HOSTS, **labels: str) -> str:
    """Select a metric of the chosen hosts, or GPU, with these labels and further matchers in PromQL's notation."""
    equal = (f'{name}="{value}"' for name, value in labels.items())
    every = ",".join(filter(None, (among, *matchers, *equal)))
    return f"{metric}{{{every}}}" if every else metric


# An annotation of several dashboards: name, expression, colour, text.
OPEN_WINDOWS = (
    "Windows in hand",
    f"{of('gpuwatch_windows_in_hand')} > 0",
    BLUE,
    "a window is open or being judged on {{instance}}",
)


def state(among: str = HOSTS, by: str = GPU) -> str:
    """Build the state of every GPU as one of ``STATES``: the first true condition of the list decides."""
    active = of("gpuwatch_gpu_clock_event_active", among=among)
    age = of("gpuwatch_reading_age_seconds", among=among, lane="fast")
    busy = of("gpuwatch_gpu_utilization_ratio", among=among, unit="gpu")
    answers = of("gpuwatch_gpu_up", among=among)

    # Select active reasons before the join: joining every reason of every GPU is slow.
    weights = f'7 * {CLASSES}{{class="hardware"}} or 6 * {CLASSES}{{class="limiting",reason!="sw_power_cap"}} or 5 * {CLASSES}{{reason="sw_power_cap"}}'
    limited = f"({active} == 1) * on (job, instance, reason) group_left () ({weights})"
    cases = (
        (1, f"{answers} == 0"),
        (2, f"{age} > {STALE_S}"),
        (None, limited),  # 7, 6 or 5: the largest active one
        (4, f"{busy} > 0"),
        (3, f"{busy} == 0"),
        (8, answers),
        (0, f"last_over_time({answers}[{SILENT}])"),
    )
    return "\nor ".join(each(of_case if value is None else f"0 * ({of_case}) + {value}", by) for value, of_case in cases)


def each(expression: str, by: str = GPU) -> str:
    """Reduce to one series per GPU (or host), the form that tables join on."""
    return f"max by ({by}) ({expression})"


def increase(counter: str, span: str) -> str:
    """Build the growth of a counter over a span, across scrape gaps and resets.  The exporter shows such counters from zero."""
    return f"increase({counter}[{span}])"


def limited_ratio(among: str = HOSTS, span: str = RATE) -> str:
    """Build the ratio of time under each reason that is not benign.  Reasons overlap, so they must not be summed."""
    seconds = of("gpuwatch_gpu_clock_event_seconds_total", among=among)
    # The rate of a counter that grows in steps can exceed 1.
    return f'clamp_max(rate({seconds}[{span}]), 1) * on (job, instance, reason) group_left (class) {CLASSES}{{class!="benign"}}'


def mean_ratio(histogram: str, *, among: str = HOSTS, by: str = GPU, span: str = RATE, **labels: str) -> str:
    """Build the mean of a histogram's samples over a span; absent without samples."""
    total, count = (of(f"{histogram}_{part}", among=among, **labels) for part in ("sum", "count"))
    return f"sum by ({by}) (rate({total}[{span}])) / (sum by ({by}) (rate({count}[{span}])) > 0)"


def quantile(share: float, increases: str, by: str = "") -> str:
    """Build a quantile of a histogram from the increases of its buckets over a span; absent without samples."""
    return f"histogram_quantile({share:g}, sum by (le{', ' if by else ''}{by}) ({increases})) >= 0"
