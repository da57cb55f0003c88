"""Cases for promtool: each alert's trouble, and a healthy host, in separate jobs through an interruption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from dashboards.alerts import ALERTS
from tests.dashboards.interruptions import DAYS, Interruption, Samples, Scale, Signal
from tests.dashboards.troubles import HEALTHY, TROUBLES

# A stopped Prometheus evaluates nothing, but promtool still evaluates with every target missing.
_NOT_IN_A_GAP = "GpuwatchAbsent|GpuwatchNodeGone"
_WELL = "gpuwatch-well"
_SHARED_MINUTES = (0, 30, 100, 1000)


def everything(scale: Scale, interruption: Interruption) -> list[dict[str, Any]]:
    """Return promtool's cases (JSON, hence Any): each trouble of this scale has a job, and one job stays healthy.

    Jobs of similar length share a case, because the longest job determines the time of a case.
    """
    minutes = scale.end * scale.step_minutes
    ever = f'count_over_time(ALERTS{{alertstate="firing",job="{_WELL}"}}[{minutes}m])'
    if scale is DAYS:
        ever = ever.replace("}[", f',alertname!~"{_NOT_IN_A_GAP}"}}[')
    names = [
        name for name, trouble in TROUBLES.items() if trouble.scale is scale and name != "GpuwatchAbsent"
    ]  # GpuwatchAbsent needs a fleet without a healthy host
    shared = [[name for name in names if begin <= _needs_minutes(name) < end] for begin, end in pairwise(_SHARED_MINUTES)]
    cases = [_shared(scale, interruption, jobs) for jobs in shared if jobs]
    longest = cases[-1]
    longest["promql_expr_test"].append(_expects(f"count by (alertname) ({ever})", minutes, []))
    longest["input_series"] += _input(_in_job(_WELL, HEALTHY), scale, interruption, minutes)
    return cases


def _shared(scale: Scale, interruption: Interruption, names: Sequence[str]) -> dict[str, Any]:
    fleet: dict[str, Signal] = {}
    expected: list[dict[str, Any]] = []
    for name in names:
        fleet |= _in_job(f"gpuwatch-{name}", _troubled(name))
        expected += _firing(name, interruption, f'job="gpuwatch-{name}"')
    return _case(f"{', '.join(names)} through {interruption}", scale, interruption, fleet, expected)


def alone(name: str, interruption: Interruption) -> dict[str, Any]:
    """Return a case of one alert's trouble only."""
    return _case(
        f"{name} through {interruption}", TROUBLES[name].scale, interruption, _troubled(name), _firing(name, interruption)
    )


def quiet(scale: Scale, interruption: Interruption) -> dict[str, Any]:
    """Return a case of a healthy host only."""
    minutes = scale.end * scale.step_minutes
    ever = f'count_over_time(ALERTS{{alertstate="firing"}}[{minutes}m])'
    return _case("well", scale, interruption, HEALTHY, [_expects(f"count by (alertname) ({ever})", minutes, [])])


def _troubled(name: str) -> dict[str, Signal]:
    return {series: signal for series, signal in {**HEALTHY, **TROUBLES[name].series}.items() if signal is not None}


def _in_job(job: str, fleet: Mapping[str, Signal]) -> dict[str, Signal]:
    return {series.replace('job="gpuwatch"', f'job="{job}"'): signal for series, signal in fleet.items()}


def _firing(name: str, interruption: Interruption, *among: str) -> list[dict[str, Any]]:
    """Return the expectations that an alert fires, or ends, and that all others outside ``Trouble.also`` stay silent."""
    trouble = TROUBLES[name]
    scale = trouble.scale
    needed_minutes = scale.back(interruption) * scale.step_minutes + _needs_minutes(name)
    minutes = -(-needed_minutes // scale.evaluation_minutes) * scale.evaluation_minutes
    others = "|".join((name, *trouble.also, *((_NOT_IN_A_GAP,) if trouble.scale is DAYS else ())))
    fires, keeps_silent = (
        ",".join((f"alertname{which}", 'alertstate="firing"', *among)) for which in (f'="{name}"', f'!~"{others}"')
    )
    ended = interruption in trouble.ended_by
    return [
        _expects(f"count(ALERTS{{{fires}}}) > 0", minutes, [] if ended else [{"labels": "{}", "value": 1}]),
        _expects(f"ALERTS{{{keeps_silent}}}", minutes, []),
    ]


def _expects(expr: str, minutes: int, samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"expr": expr, "eval_time": f"{minutes}m", "exp_samples": samples}


def _needs_minutes(name: str) -> int:
    """Return the minutes from the end of an interruption until an alert fires."""
    (hold,) = (alert.hold for alert in ALERTS if alert.name == name)
    return TROUBLES[name].needs or int(hold[:-1]) * {"m": 1, "h": 60}[hold[-1]] + 6


def _case(
    name: str, scale: Scale, interruption: Interruption, series: Mapping[str, Signal], expected: list[dict[str, Any]]
) -> dict[str, Any]:
    minutes = max(int(each["eval_time"][:-1]) for each in expected)
    return {
        "name": name,
        "interval": f"{scale.step_minutes}m",
        "input_series": _input(series, scale, interruption, minutes),
        "promql_expr_test": expected,
    }


def _input(series: Mapping[str, Signal], scale: Scale, interruption: Interruption, minutes: int) -> list[dict[str, str]]:
    shown_count = minutes // scale.step_minutes + 2  # promtool would also store later samples, which no rule queries
    return [
        {"series": each, "values": _values(signal(scale, interruption)[:shown_count], scale, interruption)}
        for each, signal in series.items()
    ]


def _values(samples: Samples, scale: Scale, interruption: Interruption) -> str:
    """Write values in promtool's notation: stale if a scrape omits the series, missing without a scrape."""
    unscraped = range(scale.at, scale.back(interruption)) if interruption is Interruption.GAP else range(0)
    words = []
    for n, sample in enumerate(samples):
        vanished = sample is None and n > 0 and samples[n - 1] is not None and n not in unscraped
        words.append(f"{sample:.10g}" if sample is not None else "stale" if vanished else "_")
    return " ".join(_run(word, sum(1 for _ in equal)) for word, equal in groupby(words))


def _run(word: str, count: int) -> str:
    """Write a run of equal values in short form, because promtool reads long forms slowly."""
    if count == 1 or word == "stale":
        return " ".join([word] * count)
    return f"_x{count}" if word == "_" else f"{word}x{count - 1}"
