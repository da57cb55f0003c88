"""Series through gaps, restarts and reloads, for cases of promtool.

The kind of a series, such as a gauge or a counter of the driver or daemon, determines the effect of each interruption.
Every alert of ``troubles`` is tested through every interruption, with and without the trouble.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Interruption(StrEnum):
    """The events that affect the series at ``Scale.at``, and the absence of an event."""

    NONE = "nothing"
    GAP = "scrape gap"  # Prometheus itself is down
    RESTART = "daemon restart"  # the daemon's counters restart, the driver's continue
    RELOAD = "driver reload"  # the driver's counters restart, the daemon's continue


@dataclass(frozen=True, slots=True)
class Scale:
    """One timeline: the minutes between samples, the interruption at ``at``, and the end."""

    step_minutes: int
    at: int
    end: int
    gap: int = 12

    @property
    def evaluation_minutes(self) -> int:
        """Return the minutes between evaluations: every third sample, including the interrupted one, is evaluated."""
        return 3 * self.step_minutes

    def back(self, interruption: Interruption) -> int:
        """Return the first sample after the interruption."""
        return self.at + {Interruption.NONE: 0, Interruption.GAP: self.gap}.get(interruption, 1)


HOURS = Scale(1, 21, 195)
DAYS = Scale(10, 150, 315)  # more than a day after the interruption, so that an offset of a day reaches the interruption

Samples: TypeAlias = list[float | None]
Signal: TypeAlias = Callable[[Scale, Interruption], Samples]


def _shown(scale: Scale, interruption: Interruption, value: Callable[[int], float | None], *, of_gpu: bool) -> Samples:
    gone = {Interruption.GAP, Interruption.RESTART} | ({Interruption.RELOAD} if of_gpu else set())
    back = scale.back(interruption)
    return [None if interruption in gone and scale.at <= n < back else value(n) for n in range(scale.end + 1)]


def state(value: float, meanwhile: float | None = None) -> Signal:
    """Build a gauge; ``meanwhile`` is the value during the driver's absence, None for no value."""

    def made(scale: Scale, interruption: Interruption) -> Samples:
        away = interruption is Interruption.RELOAD and meanwhile is not None
        return _shown(scale, interruption, lambda n: meanwhile if away and n == scale.at else value, of_gpu=meanwhile is None)

    return made


def falling(value: float, after: float) -> Signal:
    """Build a gauge that changes ten samples before the interruption."""
    return lambda scale, interruption: _shown(
        scale, interruption, lambda n: value if n < scale.at - 10 else after, of_gpu=False
    )


def driver(start: float, step: float = 0.0) -> Signal:
    """Build a counter since the driver was loaded."""

    def made(scale: Scale, interruption: Interruption) -> Samples:
        anew = interruption is Interruption.RELOAD
        return _shown(
            scale, interruption, lambda n: step * (n - scale.at) if anew and n >= scale.at else start + step * n, of_gpu=True
        )

    return made


def daemon(start: float, step: float = 0.0) -> Signal:
    """Build a counter since the daemon was started."""

    def made(scale: Scale, interruption: Interruption) -> Samples:
        anew = interruption is Interruption.RESTART
        return _shown(
            scale, interruption, lambda n: step * (n - scale.at) if anew and n >= scale.at else start + step * n, of_gpu=False
        )

    return made


def started(scale: Scale, interruption: Interruption) -> Samples:
    """Build the daemon's start time: a day before the first sample, or the restart."""
    again_s = scale.at * scale.step_minutes * 60.0
    anew = interruption is Interruption.RESTART
    return _shown(scale, interruption, lambda n: again_s if anew and n >= scale.at else -86_400.0, of_gpu=False)


def xid(scale: Scale, interruption: Interruption) -> Samples:
    """Build the wall time of an Xid shortly before the interruption, or in the gap; a restart ends the series."""
    came = scale.at + 8 if interruption is Interruption.GAP else scale.at - 3
    forgets = interruption is Interruption.RESTART
    return _shown(
        scale, interruption, lambda n: None if n < came or (forgets and n >= scale.at) else came * scale.step_minutes * 60.0,
        of_gpu=False,
    )  # fmt: skip


def wall(behind_s: float = 0.0) -> Signal:
    """Build the host's wall time, as exported on the metrics page."""
    return lambda scale, interruption: _shown(
        scale, interruption, lambda n: n * scale.step_minutes * 60.0 - behind_s, of_gpu=False
    )


def exported(scale: Scale, interruption: Interruption) -> Samples:
    """Build the time of the last export, at each midnight."""
    return _shown(scale, interruption, lambda n: n * scale.step_minutes // 1440 * 86_400.0, of_gpu=False)


def canary(value: float) -> Signal:
    """Build a figure of the last canary; a restart ends the series."""

    def made(scale: Scale, interruption: Interruption) -> Samples:
        forgets = interruption is Interruption.RESTART
        return _shown(scale, interruption, lambda n: None if forgets and n >= scale.at else value, of_gpu=False)

    return made


def leaving(signal: Signal) -> Signal:
    """Build a series whose target leaves service discovery ten samples before the interruption."""
    return lambda scale, interruption: [
        sample if n < scale.at - 10 else None for n, sample in enumerate(signal(scale, interruption))
    ]


def up(scale: Scale, interruption: Interruption) -> Samples:
    """Build Prometheus' series ``up`` of a target: 0 during a restart, missing during a scrape gap."""
    back = scale.back(interruption)
    meanwhile: Mapping[Interruption, float | None] = {Interruption.GAP: None, Interruption.RESTART: 0.0}
    return [meanwhile.get(interruption, 1.0) if scale.at <= n < back else 1.0 for n in range(scale.end + 1)]
