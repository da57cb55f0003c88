"""The recording rules: results that fleet dashboards and monthly reports would otherwise compute for every reader.

The rules aggregate by GPU, or by host and a few labels, so that a dashboard of 2 000 GPUs only looks values up.
"""

from dashboards.alert_files import Recording, rule_text
from dashboards.queries import CLASSES, STATES, state

_GPU = "job, instance, uuid, gpu"
_ON_GPU = "on (job, instance, uuid)"
_STATE = "gpuwatch:gpu_state:code"
_CLOCK = "gpuwatch:gpu_clock_under_load:ratio5m"
_POWER = "gpuwatch:gpu_power:watts5m"
_SIBLINGS = "gpuwatch:gpu_clock_against_siblings:ratio5m"
_LIMITING, _HARDWARE, _IDLE = '{class!="benign"}', '{class="hardware"}', '{reason="gpu_idle"}'
USES = ("busy", "idle with a process", "idle and empty")  # uses of a GPU's power


def _reasons(which: str) -> str:
    """Build the ratio of time under each of these reasons that was active."""
    return f"(rate(gpuwatch_gpu_clock_event_seconds_total[5m]) > 0) * on (job, instance, reason) group_left (class) {CLASSES}{which}"


def _held(which: str) -> str:
    """Build the largest ratio of time under a reason; zero if none was active, absent without a counter."""
    counted = f"0 * sum by ({_GPU}) (rate(gpuwatch_gpu_clock_event_seconds_total{_IDLE}[5m]))"
    return f"max by ({_GPU}) (\n  {_reasons(which)}\n)\nor {counted}"


def _of_model(expr: str) -> str:
    return f"{expr} * {_ON_GPU} group_left (name) gpuwatch_device_info"


def _by_use(reduced: str, of: str) -> str:
    """Reduce a figure of each GPU to one per host and use."""
    processes = f"sum by ({_GPU}) (gpuwatch_gpu_processes)"
    which = (
        f"({_STATE} > 3)",
        f"({_STATE} == 3) and {_ON_GPU} ({processes} > 0)",
        f"({_STATE} == 3) and {_ON_GPU} ({processes} == 0)",
    )
    parts = (
        f'label_replace({reduced} by (job, instance) ({of} and {_ON_GPU} {chosen}), "use", "{use}", "", "")'
        for use, chosen in zip(USES, which, strict=True)
    )
    return "\nor ".join(parts)


def _by_state() -> str:
    """Count GPUs by state, with the states' names, because a legend shows a label."""
    named = f'count_values without (uuid, gpu) ("state", {_STATE})'
    for code, look in STATES.items():
        named = f'label_replace({named}, "state", "{look.text}", "state", "{code}")'
    return named


def _concern() -> str:
    """Build a rank: the sum of weights of the state, of memory errors, and of the clock's distance below the siblings' clock."""
    weights = {1: 90, 0: 80, 2: 70, 7: 60, 6: 50, 8: 40}
    by_state = "\n+ ".join(f"{weight} * ({_STATE} == bool {code})" for code, weight in weights.items())
    none = f"0 * {_STATE}"
    errors = f'30 * (max by ({_GPU}) (gpuwatch_gpu_ecc_errors_total{{kind="uncorrected"}}) > bool 0)'
    return f"{by_state}\n+ ({errors} or {none})\n+ (100 * clamp_min(1 - sum by ({_GPU}) ({_SIBLINGS}), 0) or {none})"


RECORDINGS = (
    Recording("gpuwatch:gpu_held_back:ratio5m", _held(_LIMITING),
              "Reasons overlap, so the share of time held back is the largest share of a reason, never the sum."),
    Recording("gpuwatch:gpu_held_back_by_hardware:ratio5m", _held(_HARDWARE)),
    Recording("gpuwatch:reason_held_back:max_ratio5m", f"max by (job, instance, reason) (clamp_max({_reasons(_LIMITING)}, 1))",
              "The share of time of the most limited GPU of each host, by reason."),
    Recording(_CLOCK,
              f'sum by ({_GPU}) (rate(gpuwatch_gpu_clock_ratio_sum{{domain="sm",load="busy"}}[5m]))\n'
              f'/ (sum by ({_GPU}) (rate(gpuwatch_gpu_clock_ratio_count{{domain="sm",load="busy"}}[5m])) > 0)',
              "Samples under load only: an idle GPU has no value, because an idle clock does not describe the board."),
    Recording(_SIBLINGS,
              f"({_of_model(_CLOCK)})\n/ on (job, name) group_left () quantile by (job, name) (0.5, {_of_model(_CLOCK)})",
              "The clock relative to the median of all busy GPUs of the model. The clock depends on the work, so compare power and activity as well."),
    Recording(_POWER, f'avg by ({_GPU}) (avg_over_time(gpuwatch_gpu_power_watts{{kind="average"}}[5m]))'),
    Recording(_STATE, state(among="", by=_GPU), "State of each GPU, by the numbers of dashboards/queries.py: 1 lost, 3 idle, 5 busy under its power cap."),
    Recording("gpuwatch:gpus_by_state:count", _by_state()),
    Recording("gpuwatch:power_by_use:watts5m", _by_use("sum", _POWER), "Power of GPUs by their use."),
    Recording("gpuwatch:gpus_by_use:count", _by_use("count", _STATE)),
    Recording("gpuwatch:gpu_concern:score", _concern(), "Rank of the GPUs to look at first."),
    Recording("gpuwatch:gpu_xids:count", f"sum by ({_GPU}) (gpuwatch_gpu_xid_errors_total)",
              "Xids since the daemon started, summed over all Xid numbers."),
    Recording("gpuwatch:findings:rate5m",
              'sum by (job, instance, rule, severity) (rate(gpuwatch_findings_total[5m])) > 0',
              "Only rates above zero: most rules find nothing on a host."),
    Recording("gpuwatch:windows:increase1d", "sum by (job, instance, status) (increase(gpuwatch_windows_total[1d]))",
              "The daemon exports every status, rule and severity from zero, so increase() counts the first of each."),
    Recording("gpuwatch:findings:increase1d", "sum by (job, instance, rule, severity) (increase(gpuwatch_findings_total[1d]))"),
    Recording("gpuwatch:windows_spoilt:ratio1d",
              'sum by (job, instance) (gpuwatch:windows:increase1d{status=~"flagged|rejected"})\n'
              "/ (sum by (job, instance) (gpuwatch:windows:increase1d) > 0)",
              "Without a judged window there is no share: absent, not zero."),
)  # fmt: skip

_HEAD = """\
# Results that dashboards of many hosts and reports over months query repeatedly; the fleet dashboard needs these rules.
# Written by python -m dashboards.build from dashboards/recording.py. An evaluation_interval of 30 s to 1 min suffices.
groups:
  - name: gpuwatch-recording
    rules:
"""


def rules() -> str:
    """Return the rule file's text."""
    return _HEAD + "".join(map(rule_text, RECORDINGS))
