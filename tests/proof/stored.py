"""Evidence of one simulated run as the daemon would store it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from annotate.evidence import (
    HEARTBEAT_NS,
    SIGNALS,
    Column,
    Evidence,
    Gap,
    Lane,
    Times,
    Trace,
    Values,
    WindowRecord,
    signals,
)
from gpuwatch.store.compaction import GAP_NS, GAP_PERIODS, POWER_BAND_W
from tests.proof.chance import generator
from tests.proof.company import OWN_PID, Company
from tests.proof.shown import Shown
from tests.proof.sight import REFRESH_NS, Sight

EPOCH_NS = 3_600_000_000_000  # start of the simulation on the machine's clock
_TAIL_NS = 250_000_000  # from the window's end to the daemon's last read of the power record
_POWER = ("power_w", "power_average_w")
_MOVING = ("power_w", "power_average_w", "temperature_c", "utilization_ratio", "mem_utilization_ratio")
_MOVING_CAPPED = ("sm_clock_mhz", "power_cap_ns")


def evidence(window: WindowRecord, shown: Shown, company: Company, sight: Sight, seed: int, *, last_ns: int) -> Evidence:
    """Return this window's evidence without device, host, declared facts and times.

    ``last_ns`` is the end of the simulation, in nanoseconds since the simulation's epoch.
    """
    columns: dict[str, Column] = {}
    begin_ns, end_ns = window.begin_ns - EPOCH_NS, window.end_ns - EPOCH_NS
    asked = _Asked(begin_ns, end_ns, last_ns, sight, seed)
    rows_ns = asked.rows_ns
    if len(rows_ns):
        fast = shown.fast(rows_ns)
        kept_ns, of_row = _restored_rows(rows_ns, fast)
        columns |= {name: Column(EPOCH_NS + kept_ns, fast[name][of_row]) for name in signals(Lane.FAST)}
    if len(asked.pulses_ns):
        pulse = shown.pulse(asked.pulses_ns)
        pulsed_ns, of_pulse = _restored_rows(asked.pulses_ns, pulse)
        for name, values in pulse.items():
            columns[name] = _joined(columns.get(name), Column(EPOCH_NS + pulsed_ns, values[of_pulse]))
    for lane, at_ns, answers in (
        (Lane.SLOW, asked.slow_ns, shown.slow(asked.slow_ns)),
        (Lane.EDGE, asked.edges_ns, shown.edge(asked.edges_ns)),
    ):
        if len(at_ns) and lane not in sight.missing_lanes:
            columns |= {name: Column(EPOCH_NS + at_ns, values) for name, values in answers.items()}
    power = Column(np.empty(0, np.int64), np.empty(0, np.float64))
    if Lane.POWER not in sight.missing_lanes:
        at_ns, watts = asked.recorded(*shown.dense_power())
        power = Column(EPOCH_NS + at_ns, watts)
    capped = "power_cap_ns" in columns and bool(np.ptp(columns["power_cap_ns"].values))
    in_order = {name: columns[name] for name in SIGNALS if name in columns and name not in sight.missing}
    return Evidence(
        window=window,
        trace=Trace(
            columns=in_order,
            dense_power=power,
            process_lists=company.process_lists(asked.lists_ns, asked.uses_ns, EPOCH_NS) if len(asked.lists_ns) else (),
            gaps=asked.gaps(rows_ns),
            refresh_ns=_refresh(in_order, sight, capped, seed),
        ),
    )


class _Asked:
    """The times of each lane's answers for one window, in nanoseconds since the simulation's epoch."""

    def __init__(self, begin_ns: int, end_ns: int, last_ns: int, sight: Sight, seed: int) -> None:
        self._rng, self._sight = generator(seed, "lanes"), sight
        self._begin_ns, self._end_ns = begin_ns, end_ns
        self._first_ns = max(10_000_000, begin_ns - round(sight.lead_s * 1e9))
        self._last_ns = min(last_ns, end_ns + round(sight.tail_s * 1e9))
        offset_ns = int(self._rng.integers(sight.idle_ns))
        before = np.arange(begin_ns - offset_ns, begin_ns - 5_000_000_000, -sight.idle_ns)[::-1]
        inside = np.arange(begin_ns, end_ns, sight.row_ns)
        after = np.arange(end_ns, end_ns + 600_000_000, sight.idle_ns)
        rows = np.concatenate([before, inside, after])
        self.rows_ns = self._came(rows, Lane.FAST, sight.late_s)
        pulses = np.arange(begin_ns, end_ns, sight.pulse_ns) if sight.pulse_ns < sight.row_ns else np.empty(0, np.int64)
        pulses = pulses[(pulses - begin_ns) % sight.row_ns != 0]
        self.pulses_ns = self._came(pulses, Lane.PULSE, sight.late_s)
        slow = np.concatenate([
            begin_ns - np.array([3_100_000_000, 2_100_000_000, 1_100_000_000])[self._rng.random(3) < 0.5],
            np.arange(begin_ns + 14_000_000, end_ns, sight.slow_ns),
            [end_ns + 7_000_000],
        ])  # fmt: skip
        self.slow_ns = self._came(slow, Lane.SLOW, 2e-3)
        self.uses_ns = self._came(np.concatenate([slow, [end_ns + 107_000_000]]), Lane.PROCESSES, 1e-3)
        self.edges_ns = self._came(np.array([begin_ns - 700_000, end_ns + 400_000]), Lane.EDGE, 1e-4)
        lists = np.arange(begin_ns - 5_000_000_000 + offset_ns, end_ns + 500_000_000, 200_000_000)
        lists = lists[self._rng.random(len(lists)) < sight.lists_ratio] if sight.lists_ratio < 1.0 else lists
        self.lists_ns = self._came(lists, Lane.PROCESSES, 1e-3)
        if not sight.lists_ratio:
            self.uses_ns = self.uses_ns[:0]

    def recorded(self, at_ns: Times, watts: Values) -> tuple[Times, Values]:
        """Return the fetched samples of the dense power record.

        The daemon reads the record once a second and once more after the window.  The record holds the last 2.36 s.
        """
        asked = np.arange(self._first_ns + int(self._rng.integers(1_000_000_000)), self._last_ns, 1_000_000_000)
        asked = np.union1d(asked, [tail_ns] if (tail_ns := self._end_ns + _TAIL_NS) < self._last_ns else [])
        asked = asked[self._is_asked(asked, Lane.POWER)]
        number = np.searchsorted(asked, at_ns)
        kept = number < len(asked)
        kept[kept] = asked[number[kept]] - at_ns[kept] < 2_360_000_000
        kept &= (at_ns >= self._begin_ns - 5_000_000_000) & (at_ns >= self._first_ns)
        return at_ns[kept], watts[kept]

    def gaps(self, rows_ns: Times) -> tuple[Gap, ...]:
        """Return the fast lane's gaps: the distances between rows that exceed the store's limit."""
        limit_ns = max(GAP_NS, GAP_PERIODS * min(self._sight.row_ns, self._sight.idle_ns))
        long = np.flatnonzero(np.diff(rows_ns) > limit_ns)
        return tuple(Gap(begin_ns=EPOCH_NS + int(rows_ns[i]), end_ns=EPOCH_NS + int(rows_ns[i + 1])) for i in long)

    def _came(self, due_ns: Times, lane: Lane, late_s: float) -> Times:
        """Return the times of the answers to these deadlines, each a little late.

        An answer that comes before the answer to an earlier deadline is left out.
        """
        due_ns = due_ns[(due_ns >= self._first_ns) & (due_ns <= self._last_ns)]
        due_ns = due_ns[self._is_asked(due_ns, lane)].astype(np.int64)
        late_ns = (self._rng.exponential(late_s, len(due_ns)) * 1e9).astype(np.int64) + 20_000
        came = due_ns + late_ns
        if len(came) > 1:
            latest = np.maximum.accumulate(came)
            came = came[np.concatenate([[True], came[1:] > latest[:-1]])]
        return came

    def _is_asked(self, at_ns: Times, lane: Lane) -> npt.NDArray[np.bool_]:
        asked = np.ones(len(at_ns), np.bool_)
        for silence in self._sight.silences:
            if lane in silence.lanes:
                begin_ns = self._begin_ns + round(silence.begin_s * 1e9)
                asked &= (at_ns < begin_ns) | (at_ns >= self._begin_ns + round(silence.end_s * 1e9))
        return asked


def _restored_rows(at_ns: Times, values: Mapping[str, Values]) -> tuple[Times, Times]:
    """Return times and indices of the rows restored from the store.  A run of equal rows repeats once per heartbeat."""
    exact = np.column_stack([of for name, of in values.items() if name not in _POWER])
    same = np.concatenate([[False], (exact[1:] == exact[:-1]).all(axis=1)])
    same[1:] &= np.diff(at_ns) <= GAP_NS
    watts = np.column_stack([of for name, of in values.items() if name in _POWER]) if _POWER[0] in values else None
    if watts is not None:
        repeats = same.tolist()
        power, average = watts[:, 0].tolist(), watts[:, 1].tolist()
        first = 0
        for i in range(1, len(repeats)):
            repeats[i] &= abs(power[i] - power[first]) < POWER_BAND_W and abs(average[i] - average[first]) < POWER_BAND_W
            first = first if repeats[i] else i
        same = np.array(repeats)
    begins = np.flatnonzero(~same)
    ends = np.concatenate([begins[1:] - 1, [len(at_ns) - 1]])
    times: list[int] = []
    rows: list[int] = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        kept_ns = list(range(int(at_ns[begin]), int(at_ns[end]), HEARTBEAT_NS)) or [int(at_ns[begin])]
        kept_ns += [int(at_ns[end])] if at_ns[end] > kept_ns[-1] else []
        times += kept_ns
        rows += [begin] * len(kept_ns)
    return np.array(times, np.int64), np.array(rows, np.int64)


def _joined(first: Column | None, second: Column) -> Column:
    if first is None:
        return second
    at_ns = np.concatenate([first.at_ns, second.at_ns])
    values = np.concatenate([first.values, second.values])
    order = np.argsort(at_ns, kind="stable")
    at_ns, values = at_ns[order], values[order]
    kept = np.concatenate([[True], np.diff(at_ns) > 0])
    return Column(at_ns[kept], values[kept])


def _refresh(columns: Mapping[str, Column], sight: Sight, capped: bool, seed: int) -> dict[str, int]:
    """Return the refresh periods that the daemon would measure for values that change; empty if the sight has none."""
    if not sight.refresh_known:
        return {}
    rng = generator(seed, "refresh")
    names: Sequence[str] = (*_MOVING, *_MOVING_CAPPED) if capped else _MOVING
    periods = {name: REFRESH_NS.get(name, REFRESH_NS["utilization_ratio"]) * sight.refresh_factor for name in names}
    return {name: round(period * (1.0 + rng.normal(0.0, 3e-5))) for name, period in periods.items() if name in columns}


def window_of(begin_s: float, end_s: float, label: str) -> WindowRecord:
    """Return the window of the measured process, on the machine's clock."""
    begin_ns, end_ns = EPOCH_NS + round(begin_s * 1e9), EPOCH_NS + round(end_s * 1e9)
    return WindowRecord(begin_ns=begin_ns, end_ns=end_ns, label=label, pids=frozenset({OWN_PID}))
