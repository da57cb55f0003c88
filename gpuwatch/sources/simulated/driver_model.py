"""The driver's view of a simulated board: values from a periodically refreshed page, counters, and the cost of each call.

Refresh periods and costs are those of one H200; docs/HARDWARE.md records the main ones.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gpuwatch.sources.simulated.physics import SLOWDOWN_C, Physics, Totals
from gpuwatch.sources.simulated.scenes import Fault
from gpuwatch.sources.simulated.script import Script

PAGE_NS, UTILIZATION_NS, TEMPERATURE_NS = 100_000_000, 208_000_000, 200_000_000
GPM_NS = 100_000_000  # least time between two GPM samples; an earlier read repeats the last means
RESERVED_BYTES = 645_000_000
OWN_BYTES = 2_300_000_000

# Cost of each call in nanoseconds; any other signal costs ``_PAGE_COST_NS``, except the other GPM ratios (``cost_ns``).
_PAGE_COST_NS = 800
COST_NS: Mapping[str, int] = {
    "power_w": 2_600, "memory_used_bytes": 4_000, "power_cap_ns": 2_600, "sync_boost_ns": 2_600, "sw_thermal_ns": 2_600,
    "hw_thermal_ns": 360_000, "power_brake_ns": 360_000, "energy_j": 3_700_000, "memory_temperature_c": 2_600,
    "ecc_corrected_count": 6_000, "ecc_uncorrected_count": 6_000, "remapped_rows_count": 8_000, "pcie_replay_count": 130_000,
    "sm_activity_ratio": 1_450_000, "power_violation_ns": 600_000, "thermal_violation_ns": 600_000,
}  # fmt: skip
PROCESS_LIST_COST_NS, PROCESS_LIST_BUSY_COST_NS, POWER_RECORD_COST_NS = 15_000, 1_800_000, 250_000


class Driver:
    """One board behind its driver.  Not thread-safe: the source holds one lock per board."""

    def __init__(self, script: Script, seed: str) -> None:
        self.physics = Physics(script, seed)
        rng = random.Random(seed + "/driver")  # noqa: S311 - phases, not secrets
        self.offset_ns = rng.randrange(10**12)  # the power counters' start value: the driver was loaded long ago
        self._due_ns = [rng.randrange(period) for period in (PAGE_NS, UTILIZATION_NS, TEMPERATURE_NS)]
        self.page = self._fresh_page()
        self.temperature_c = round(self.physics.temperature_c)
        self.utilization_ratio = self.mem_utilization_ratio = 0.0
        self._utilized_at = (0, 0.0, 0.0)
        self._gpm_at: tuple[int, Totals] | None = None
        self.gpm: Mapping[str, float] = {}

    def advance(self, now_ns: int) -> None:
        """Advance the board to a time since the epoch; a time in the past does nothing."""
        physics = self.physics
        while physics.next_ns() <= now_ns:
            physics.step()
            if physics.now_ns >= min(self._due_ns):
                self._refresh(physics.now_ns)

    def values(self, names: frozenset[str]) -> dict[str, Any]:
        """Return the current values of the signals among ``names`` that the board has."""
        if names & _GPM.keys():
            self._read_gpm()
        read = {**self.page, **self.gpm}
        return {name: read[name] if name in read else _ASK[name](self) for name in names if name in read or name in _ASK}

    def _refresh(self, now_ns: int) -> None:
        page_ns, utilization_ns, temperature_ns = self._due_ns
        if now_ns >= page_ns:
            self.page = self._fresh_page()
            self._due_ns[0] = page_ns + PAGE_NS
        if now_ns >= utilization_ns:
            since_ns, utilized_ns, mem_utilized_ns = self._utilized_at
            totals, span_ns = self.physics.totals, max(1, now_ns - since_ns)
            # The driver reports utilisation in whole percent.
            self.utilization_ratio = round((totals.utilized_ns - utilized_ns) / span_ns, 2)
            self.mem_utilization_ratio = round((totals.mem_utilized_ns - mem_utilized_ns) / span_ns, 2)
            self._utilized_at = (now_ns, totals.utilized_ns, totals.mem_utilized_ns)
            self._due_ns[1] = utilization_ns + UTILIZATION_NS
        if now_ns >= temperature_ns:
            self.temperature_c = round(self.physics.temperature_c)
            self._due_ns[2] = temperature_ns + TEMPERATURE_NS

    def _fresh_page(self) -> dict[str, float]:
        """Return the signals of the driver's shared page, with their current values."""
        physics = self.physics
        return {
            "sm_clock_mhz": physics.programmed_mhz,
            "power_w": round(physics.record[-1][1] if physics.record else physics.average_w, 3),
            "power_average_w": round(physics.average_w, 3),
            "event_reasons_mask": int(physics.reasons_mask),
            "power_cap_ns": self.offset_ns + physics.totals.power_cap_ns,
            "sync_boost_ns": physics.totals.sync_boost_ns,
            "sw_thermal_ns": physics.totals.sw_thermal_ns,
        }

    def _read_gpm(self) -> None:
        now_ns, totals = self.physics.now_ns, self.physics.totals
        if self._gpm_at is not None and now_ns - self._gpm_at[0] < GPM_NS:
            return
        if self._gpm_at is not None:
            since_ns, before = self._gpm_at
            self.gpm = {
                name: (getattr(totals, total) - getattr(before, total)) / (now_ns - since_ns) for name, total in _GPM.items()
            }
        self._gpm_at = (now_ns, replace(totals))

    def memory_used_bytes(self) -> int:
        at_s = self.physics.stretch.begin_s
        neighbours = sum(n.memory_bytes for n in self.physics.script.scene.neighbours if n.begin_s <= at_s < n.end_s)
        own = OWN_BYTES if at_s >= self.physics.script.scene.context_s else 0
        return RESERVED_BYTES + own + neighbours

    def mishap_count(self, fault: Fault) -> int:
        return sum(int(m.value) for m in self.physics.stretch.mishaps if m.fault is fault)


_GPM = {
    "sm_activity_ratio": "sm_active_ns",
    "sm_occupancy_ratio": "occupied_ns",
    "tensor_activity_ratio": "tensor_active_ns",
    "dram_activity_ratio": "dram_active_ns",
}

# Signals from neither the page nor the GPM; each has the type of its field in Reading.
_ASK: Mapping[str, Callable[[Driver], Any]] = {
    "mem_clock_mhz": lambda driver: driver.physics.stretch.mem_clock_mhz,
    "temperature_c": lambda driver: driver.temperature_c,
    "utilization_ratio": lambda driver: driver.utilization_ratio,
    "mem_utilization_ratio": lambda driver: driver.mem_utilization_ratio,
    "memory_used_bytes": Driver.memory_used_bytes,
    "hw_thermal_ns": lambda driver: driver.physics.totals.hw_thermal_ns,
    "power_brake_ns": lambda driver: driver.physics.totals.power_brake_ns,
    "energy_j": lambda driver: round(1000.0 + driver.physics.totals.energy_j, 3),
    "memory_temperature_c": lambda driver: driver.temperature_c + 5,
    "temperature_margin_c": lambda driver: SLOWDOWN_C - driver.temperature_c,
    "ecc_corrected_count": lambda driver: driver.mishap_count(Fault.ECC_CORRECTED),
    "ecc_uncorrected_count": lambda driver: driver.mishap_count(Fault.ECC_UNCORRECTED),
    "remapped_rows_count": lambda _: 0,
    "remap_pending_count": lambda driver: int(driver.mishap_count(Fault.ECC_UNCORRECTED) > 0),
    "remap_failed_count": lambda _: 0,
    "pcie_replay_count": lambda _: 0,
    "pcie_generation_count": lambda _: 5,
    "pcie_width_count": lambda _: 16,
    "power_limit_w": lambda driver: driver.physics.stretch.power_limit_w,
    "persistence_mode": lambda driver: driver.physics.board.persistence_mode,
    "ecc_mode": lambda _: True,
    "mig_mode": lambda driver: bool(driver.physics.board.mig_profiles),
    "compute_mode": lambda _: 0,
    "power_violation_ns": lambda driver: driver.offset_ns + driver.physics.totals.power_cap_ns,
    "thermal_violation_ns": lambda driver: driver.physics.totals.sw_thermal_ns + driver.physics.totals.hw_thermal_ns,
}


def cost_ns(names: frozenset[str]) -> int:
    """Return the nanoseconds that reading these signals takes; all GPM ratios together cost one sample."""
    gpm = names & _GPM.keys()
    return sum(COST_NS.get(name, _PAGE_COST_NS) for name in names - gpm) + (COST_NS["sm_activity_ratio"] if gpm else 0)
