"""One run of the simulated board: its physics stepped over a timeline and logged as arrays."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np

from annotate.evidence import Times, Values
from gpuwatch.sources.simulated.physics import Physics
from tests.proof.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The state of the board after each step; times are nanoseconds since the simulation's epoch.

    Totals only grow.  ``interval`` is the index of each step's interval in the timeline.
    """

    end_ns: Times
    clock_ratio: Values
    shown_mhz: Values
    reasons_mask: Values
    average_w: Values
    temperature_c: Values
    energy_j: Values
    power_cap_ns: Values
    sync_boost_ns: Values
    power_brake_ns: Values
    sw_thermal_ns: Values
    hw_thermal_ns: Values
    interval: Times
    bins_ns: Times  # of the driver's dense power record
    bins_w: Values

    @property
    def begin_ns(self) -> Times:
        return np.concatenate([[0], self.end_ns[:-1]])


class Board:
    """Physics that is stepped and logged, and can be forked onto another timeline."""

    def __init__(self, timeline: Timeline, seed: str) -> None:
        self.timeline = timeline
        self._physics = Physics(timeline, seed)
        self._rows: list[tuple[float, ...]] = []
        self._bins: list[tuple[int, float]] = []

    def run(self, until_ns: int) -> None:
        """Step at least until this time."""
        physics, rows, bins = self._physics, self._rows, self._bins
        record, history, totals = physics.record, physics.history, physics.totals
        while physics.now_ns < until_ns:
            begin_ns = physics.now_ns
            physics.step()
            history.clear()
            if record:
                bins.append(record.popleft())
            rows.append((
                physics.now_ns, begin_ns, physics.clock_ratio, physics.programmed_mhz, physics.reasons_mask, physics.average_w,
                physics.temperature_c, totals.energy_j, totals.power_cap_ns, totals.sync_boost_ns, totals.power_brake_ns,
                totals.sw_thermal_ns, totals.hw_thermal_ns,
            ))  # fmt: skip

    def fork(self, timeline: Timeline) -> Board:
        """Return a board with the same past that continues on another timeline, which must equal this timeline until now."""
        other = Board.__new__(Board)
        other.timeline = timeline
        other._rows, other._bins = list(self._rows), list(self._bins)
        other._physics = copy.deepcopy(self._physics, {id(self.timeline): timeline})
        now_s = self._physics.now_ns / 1e9
        stretch = timeline.at(now_s + 1e-6)
        other._physics.stretch = stretch
        other._physics._stretch_end_ns = round(stretch.end_s * 1e9)
        return other

    def course(self) -> Course:
        """Return the log as arrays."""
        table = np.array(self._rows, np.float64)
        end_ns, begin_ns = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
        timeline = self.timeline
        middle_s = (end_ns + begin_ns) / 2e9
        interval = np.searchsorted(timeline.edges_s, middle_s, side="right") - 1
        interval = np.minimum(interval, len(timeline.stretches) - 1).astype(np.int64)
        thermal = timeline.levels.thermal[interval]
        length_ns = end_ns - begin_ns
        bins = np.array(self._bins, np.float64).reshape(-1, 2)
        return Course(
            end_ns=end_ns,
            clock_ratio=table[:, 2],
            shown_mhz=table[:, 3],
            reasons_mask=table[:, 4],
            average_w=table[:, 5],
            temperature_c=table[:, 6],
            energy_j=table[:, 7],
            power_cap_ns=table[:, 8],
            sync_boost_ns=table[:, 9],
            power_brake_ns=table[:, 10],
            sw_thermal_ns=table[:, 11] + np.cumsum(length_ns * (thermal & 1)),
            hw_thermal_ns=table[:, 12] + np.cumsum(length_ns * (thermal >> 1)),
            interval=interval,
            bins_ns=bins[:, 0].astype(np.int64),
            bins_w=bins[:, 1],
        )
