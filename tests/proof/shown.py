"""The driver's values during a run of the board: periodically refreshed pages, counters, and means between two reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from annotate.evidence import Times, Values
from tests.proof.board import Course
from tests.proof.chance import generator
from tests.proof.sight import REFRESH_NS, Sight
from tests.proof.timeline import Timeline

RESERVED_BYTES, OWN_BYTES = 644_939_776, 10_705_960_960
_POWER_LAG_NS = 20_000_000
_ZEROS = (
    "ecc_corrected_count", "ecc_uncorrected_count", "remapped_rows_count", "remap_pending_count", "remap_failed_count",
    "pcie_replay_count", "mig_mode", "compute_mode",
)  # fmt: skip
_GPM = {
    "sm_activity_ratio": "sm_activity_ratio", "sm_occupancy_ratio": "occupancy_ratio",
    "tensor_activity_ratio": "tensor_activity_ratio", "dram_activity_ratio": "dram_activity_ratio",
}  # fmt: skip


class Shown:
    """The driver's answers during one run, for any read times in nanoseconds since the simulation's epoch."""

    def __init__(self, timeline: Timeline, course: Course, sight: Sight, foreign_bytes: Callable[[Times], Values], seed: int):
        self._timeline, self._course, self._sight = timeline, course, sight
        self._foreign_bytes = foreign_bytes
        rng = generator(seed, "driver")
        self._phases = {name: float(rng.random()) for name in REFRESH_NS}
        self._loaded_ns = int(rng.integers(10**9, 10**12))
        sums = [stretch.sums for stretch in timeline.stretches]
        steps_ns = np.diff(course.end_ns, prepend=0).astype(np.float64)
        self._integrals: dict[str, Values] = {}
        for name in ("utilization_ratio", "mem_utilization_ratio", *_GPM.values()):
            of_interval = np.array([getattr(each, name) for each in sums])
            self._integrals[name] = np.cumsum(steps_ns * of_interval[course.interval])

    def fast(self, at_ns: Times) -> Mapping[str, Values]:
        """Return the signals of the fast lane at these times."""
        course = self._course
        page_ns = {name: self._refreshed_ns(name, at_ns) for name in REFRESH_NS}
        return {
            **self.pulse(at_ns),
            "mem_clock_mhz": np.round(3201.0 * self._timeline.levels.mem_clock[course.interval[self._step(at_ns)]]),
            "power_w": self._power_w(page_ns["power_w"]),
            "power_average_w": np.round(self._held(course.average_w, page_ns["power_average_w"]), 3),
            "temperature_c": np.round(self._held(course.temperature_c, page_ns["temperature_c"])),
            "utilization_ratio": self._use("utilization_ratio", page_ns["utilization_ratio"]),
            "mem_utilization_ratio": self._use("mem_utilization_ratio", page_ns["utilization_ratio"]),
            "memory_used_bytes": RESERVED_BYTES + OWN_BYTES + self._foreign_bytes(at_ns),
            "power_cap_ns": self._loaded_ns + self._held(course.power_cap_ns, page_ns["power_cap_ns"]),
            "sync_boost_ns": self._held(course.sync_boost_ns, page_ns["power_cap_ns"]),
            "sw_thermal_ns": self._held(course.sw_thermal_ns, page_ns["power_cap_ns"]),
        }

    def pulse(self, at_ns: Times) -> Mapping[str, Values]:
        """Return the clock and the event reasons, which the pulse lane reads between two rows."""
        page_ns = self._refreshed_ns("sm_clock_mhz", at_ns)
        return {
            "sm_clock_mhz": self._held(self._course.shown_mhz, page_ns),
            "event_reasons_mask": self._held(self._course.reasons_mask, page_ns),
        }

    def slow(self, at_ns: Times) -> Mapping[str, Values]:
        """Return the slow lane's signals.  A mean covers the time since the previous read, so the first mean is NaN."""
        course, step = self._course, self._step(at_ns)
        interval = course.interval[step]
        temperature_c = np.round(course.temperature_c[step])
        gpm = {}
        for name, source in _GPM.items():
            total = np.interp(at_ns, course.end_ns, self._integrals[source])
            means = np.diff(total) / np.maximum(1, np.diff(at_ns))
            gpm[name] = np.concatenate([[np.nan], np.round(means, 6)])
        locked = np.array([bool(stretch.reasons_mask & 0x2) for stretch in self._timeline.stretches])
        lock_mhz = np.round(1980.0 * self._timeline.levels.clock / 15.0) * 15.0
        constants = {"pcie_generation_count": 5.0, "pcie_width_count": 16.0, "persistence_mode": 1.0, "ecc_mode": 1.0}
        slow = {
            "hw_thermal_ns": course.hw_thermal_ns[step],
            "power_brake_ns": course.power_brake_ns[step],
            "energy_j": np.round(1000.0 + np.interp(at_ns, course.end_ns, course.energy_j), 3),
            "memory_temperature_c": temperature_c - 12.0,
            "temperature_margin_c": 80.0 - temperature_c,
            **dict.fromkeys(_ZEROS, np.zeros(len(at_ns))),
            **{name: np.full(len(at_ns), value) for name, value in constants.items()},
            **gpm,
            "power_limit_w": np.round(self._timeline.levels.power_limit_w[interval], 3),
        }
        if locked[interval].any():
            slow["sm_clock_lock_mhz"] = np.where(locked[interval], lock_mhz[interval], np.nan)
        return slow

    def edge(self, at_ns: Times) -> Mapping[str, Values]:
        """Return the power violation counter, which the daemon reads at a window's edges and which grows without steps."""
        return {
            "power_violation_ns": self._loaded_ns + np.round(np.interp(at_ns, self._course.end_ns, self._course.power_cap_ns))
        }

    def dense_power(self) -> tuple[Times, Values]:
        """Return all samples of the driver's own power record."""
        return self._course.bins_ns, np.round(self._course.bins_w, 1)

    def _refreshed_ns(self, name: str, at_ns: Times) -> Values:
        period_ns = REFRESH_NS[name] * self._sight.refresh_factor
        phase_ns = self._phases[name] * period_ns
        return np.asarray(np.maximum(0.0, phase_ns + np.floor((at_ns - phase_ns) / period_ns) * period_ns), np.float64)

    def _step(self, at_ns: Times | Values) -> Times:
        return np.minimum(np.searchsorted(self._course.end_ns, at_ns), len(self._course.end_ns) - 1)

    def _held(self, values: Values, at_ns: Values) -> Values:
        return np.asarray(values[self._step(at_ns)], np.float64)

    def _power_w(self, at_ns: Values) -> Values:
        bins_ns = self._course.bins_ns
        number = np.searchsorted(bins_ns, at_ns - _POWER_LAG_NS, side="right") - 1
        return np.asarray(np.round(self._course.bins_w[np.maximum(number, 0)], 3), np.float64)

    def _use(self, name: str, at_ns: Values) -> Values:
        """Return the mean ratio over the refresh period that ends at each time, rounded to a whole percent."""
        period_ns = REFRESH_NS["utilization_ratio"] * self._sight.refresh_factor
        total = self._integrals[name]
        ends_ns = self._course.end_ns
        ratio = (np.interp(at_ns, ends_ns, total) - np.interp(at_ns - period_ns, ends_ns, total)) / period_ns
        return np.asarray(np.round(np.clip(ratio, 0.0, 1.0), 2), np.float64)
