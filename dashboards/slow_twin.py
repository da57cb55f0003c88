"""Slow twins: a GPU, or a whole host, with a lower clock than others of its model and no reason for it.

A healthy GPU runs at the highest clock up to its power limit.  Two comparisons follow.  The first compares GPUs below their
limit with all such GPUs of the model: load does not explain a lower clock there.  The second compares GPUs at their limit,
where the clock depends on the work: limit and activity must agree, and only a large difference counts.
A canary is the same work on every GPU, so the comparison of canaries needs no further condition.
"""

from dashboards.alert_files import GPU_NAMED, Alert, Recording, RuleGroup

_GPU = "job, instance, uuid, gpu"
_SPAN = "15m"
_CLOCK = 'gpuwatch_gpu_clock_ratio_{part}{{domain="sm",load="busy"}}'
_MODEL = "* on (job, instance, uuid) group_left (name)\ngroup by (job, instance, uuid, name) (gpuwatch_device_info)"
_FREE, _CAPPED = "gpuwatch:gpu_twin_free_clock:ratio15m", "gpuwatch:gpu_twin_capped_clock:ratio15m"
_ALL, _HELD = "gpuwatch:gpu_twin_clock:ratio15m", "gpuwatch:gpu_twin_capped:ratio15m"
_CANARY, _COPY = "gpuwatch:gpu_twin_canary:hertz", "gpuwatch:gpu_twin_canary_copy:bytes_per_second"
_KIND = "job, name, limit, tensor, dram"


def _rate(part: str) -> str:
    return f"sum by ({_GPU}) (rate({_CLOCK.format(part=part)}[{_SPAN}]))"


def _in_classes(label: str, values: str) -> str:
    """Build a series of 1 for each GPU with its class as a label, to join on."""
    return f'* on (job, instance, uuid) group_left ({label})\ncount_values by (job, instance, uuid) ("{label}", {values})'


def _activity_class(unit: str) -> str:
    return f'round(avg_over_time(gpuwatch_gpu_activity_ratio{{unit="{unit}"}}[{_SPAN}]), 0.25)'


def _fresh_canary(metric: str) -> str:
    age = "gpuwatch_wall_timestamp_seconds - on (job, instance) group_right () gpuwatch_gpu_canary_timestamp_seconds"
    return f"({metric} and on (job, instance, uuid) ({age}) < 86400)\n{_MODEL}"


def _below(series: str, by: str, share: float, level: float, count: int, hosts: int = 1) -> str:
    """Build the GPUs below a ratio of a quantile of their group, if the group has enough GPUs on enough hosts."""
    enough = f"count by ({by}) ({series}) >= {count}"
    if hosts > 1:
        enough += f" and count by ({by}) (group by ({by}, instance) ({series})) >= {hosts}"
    return f"{series}\n< on ({by}) group_left ()\n{share:g} * (quantile by ({by}) ({level:g}, {series}) and {enough})"


_RECORDINGS = (
    Recording(
        record=_ALL,
        expr=f"(\n  {_rate('sum')}\n  / ({_rate('count')} > 0)\n"
        f'  and on (job, instance, uuid) avg_over_time(gpuwatch_gpu_utilization_ratio{{unit="gpu"}}[{_SPAN}]) > 0.5\n'
        "  unless on (job, instance, uuid)\n"
        f'  rate(gpuwatch_gpu_clock_event_seconds_total{{reason=~"hw_.*|sw_thermal_slowdown"}}[{_SPAN}]) > 0.02\n'
        f")\n{_MODEL}",
        why="Mean clock of busy GPUs, without GPUs slowed by heat or hardware, which raise other alerts.",
    ),
    Recording(
        record=_HELD,
        expr=f"clamp_max(max by ({_GPU}) (\n"
        f'  rate(gpuwatch_gpu_clock_event_seconds_total{{reason="sw_power_cap"}}[{_SPAN}])\n), 1)',
        why="Share of time at the power limit, clamped: the rate of a counter read in steps can exceed 1.",
    ),
    Recording(
        record=_FREE,
        expr=f"{_ALL} and on (job, instance, uuid) {_HELD} < 0.05",
        why="Mean clock of GPUs that were at the power limit for less than 5 % of the time.",
    ),
    Recording(
        record=_CAPPED,
        expr=f"({_ALL} and on (job, instance, uuid) {_HELD} > 0.8)\n"
        + _in_classes("limit", 'gpuwatch_gpu_power_limit_watts{kind="enforced"}')
        + "\n"
        + _in_classes("tensor", _activity_class("tensor"))
        + "\n"
        + _in_classes("dram", _activity_class("dram")),
        why="Mean clock of GPUs that were at the power limit for more than 80 % of the time, with labels for limit and activity "
        "(in quarters). GPUs without activity counters are left out.",
    ),
    Recording(
        record=_CANARY,
        expr=_fresh_canary("gpuwatch_gpu_canary_clock_hertz"),
        why="Clock of a GPU's last canary, at most one day old.",
    ),
    Recording(record=_COPY, expr=_fresh_canary("gpuwatch_gpu_canary_copy_bytes_per_second"), why="Last canary's copy rate."),
)

_ALERTS = (
    Alert(
        name="GpuwatchSlowTwin",
        hold="30m",
        severity="info",
        expr=_below(_FREE, "job, name", 0.9, 0.75, 4) + "\nor\n" + _below(_CAPPED, _KIND, 0.85, 0.25, 8, hosts=3),
        says=f"{GPU_NAMED} clocks below others of its model under load",
        why="Below the power limit, the clock is more than 10 % below the upper quartile of such GPUs of the model and job. Or, at the "
        "limit, the clock is more than 15 % below the lower quartile of GPUs with the same limit and a similar activity. The driver reports "
        "neither heat nor hardware as the reason. A slow host raises the alert once for each GPU.",
        do="First check for a forgotten clock lock (nvidia-smi -q -d CLOCK; nvidia-smi -rgc removes the lock). Then run the same work on this "
        "GPU and on a twin (gpuwatch compare). Have a board replaced that stays slow.",
    ),
    Alert(
        name="GpuwatchSlowCanary",
        severity="info",
        expr=_below(_CANARY, "job, name", 0.95, 0.5, 4) + "\nor\n" + _below(_COPY, "job, name", 0.95, 0.5, 4),
        says=f"the canary of {GPU_NAMED} is slower than those of its model",
        why="A canary of bench() is the same short work on every GPU. In the last day the clock or the copy rate was more than 5 % below the "
        "median of the model and job. The measured process declares both.",
        do="Run gpuwatch.bench there on a quiet GPU. If the canary stays slow, check for a clock lock and for slow memory "
        "(gpuwatch_gpu_clock_hertz of the domain memory), and swap the board with a twin.",
        rule="clock-low-no-reason",
    ),
)  # fmt: skip

SLOW_TWINS = RuleGroup(name="gpuwatch-slow-twins", every="1m", rules=(*_RECORDINGS, *_ALERTS))
