"""The columns of nvidia-smi: signal, unit, and the parsing of cells.

Names and units are those of ``nvidia-smi --help-query-gpu`` (drivers 470 to 580), old spellings included.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from annotate.evidence import Reason
from gpuwatch.errors import UsageError
from gpuwatch.sources import nearest


@dataclass(frozen=True, slots=True)
class Meaning:
    """A column's signal, the unit in the header and cells, and the factor to the signal's unit."""

    signal: str
    unit: str = ""
    scale: float = 1.0


_SM, _MEMORY = Meaning("sm_clock_mhz", "MHz"), Meaning("mem_clock_mhz", "MHz")
_MASK = Meaning("event_reasons_mask", "mask")
_SWITCH = "switch"

SIGNAL_COLUMNS: Mapping[str, Meaning] = {
    "clocks.current.sm": _SM,
    "clocks.sm": _SM,
    "clocks.current.memory": _MEMORY,
    "clocks.mem": _MEMORY,
    # From Ampere on, power.draw is the mean of the last second (nvidia-smi --help-query-gpu).
    "power.draw": Meaning("power_average_w", "W"),
    "power.draw.average": Meaning("power_average_w", "W"),
    "power.draw.instant": Meaning("power_w", "W"),
    "temperature.gpu": Meaning("temperature_c"),
    "temperature.memory": Meaning("memory_temperature_c"),
    "temperature.gpu.tlimit": Meaning("temperature_margin_c"),
    "utilization.gpu": Meaning("utilization_ratio", "%", 0.01),
    "utilization.memory": Meaning("mem_utilization_ratio", "%", 0.01),
    "memory.used": Meaning("memory_used_bytes", "MiB", 2.0**20),
    "clocks_event_reasons.active": _MASK,
    "clocks_throttle_reasons.active": _MASK,
    "clocks_event_reasons_counters.sw_power_cap": Meaning("power_cap_ns", "us", 1e3),
    "clocks_event_reasons_counters.sync_boost": Meaning("sync_boost_ns", "us", 1e3),
    "clocks_event_reasons_counters.sw_thermal_slowdown": Meaning("sw_thermal_ns", "us", 1e3),
    "clocks_event_reasons_counters.hw_thermal_slowdown": Meaning("hw_thermal_ns", "us", 1e3),
    "clocks_event_reasons_counters.hw_power_brake_slowdown": Meaning("power_brake_ns", "us", 1e3),
    "enforced.power.limit": Meaning("power_limit_w", "W"),
    "ecc.errors.corrected.volatile.total": Meaning("ecc_corrected_count"),
    "ecc.errors.uncorrected.volatile.total": Meaning("ecc_uncorrected_count"),
    "pcie.link.gen.current": Meaning("pcie_generation_count"),
    "pcie.link.gen.gpucurrent": Meaning("pcie_generation_count"),
    "pcie.link.width.current": Meaning("pcie_width_count"),
    "persistence_mode": Meaning("persistence_mode", _SWITCH),
    "ecc.mode.current": Meaning("ecc_mode", _SWITCH),
    "mig.mode.current": Meaning("mig_mode", _SWITCH),
}

_REASONS = {
    "gpu_idle": Reason.GPU_IDLE,
    "applications_clocks_setting": Reason.APPLICATIONS_CLOCKS,
    "sw_power_cap": Reason.SW_POWER_CAP,
    "hw_slowdown": Reason.HW_SLOWDOWN,
    "sync_boost": Reason.SYNC_BOOST,
    "sw_thermal_slowdown": Reason.SW_THERMAL,
    "hw_thermal_slowdown": Reason.HW_THERMAL,
    "hw_power_brake_slowdown": Reason.HW_POWER_BRAKE,
}
_TABLES = ("clocks_event_reasons", "clocks_throttle_reasons")  # from driver 535 on, and before 535
REASON_COLUMNS: Mapping[str, int] = {f"{table}.{name}": int(bit) for table in _TABLES for name, bit in _REASONS.items()}
FAULT_REASONS = {int(bit) for bit in _REASONS.values()} - {int(Reason.GPU_IDLE), int(Reason.APPLICATIONS_CLOCKS)}

# Columns with a GPU's facts, and the field of Device for each; Device has no ``index``.
IDENTITY: Mapping[str, str] = {
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "index": "index",
    "name": "name",
    "gpu_name": "name",
    "pci.bus_id": "pci_bus_id",
    "gpu_bus_id": "pci_bus_id",
    "driver_version": "driver_version",
    "vbios_version": "vbios_version",
    "clocks.max.sm": "sm_clock_max_mhz",
    "clocks.max.memory": "mem_clock_max_mhz",
    "clocks.max.mem": "mem_clock_max_mhz",
    "power.limit": "power_limit_w",
    "power.default_limit": "power_limit_default_w",
    "power.min_limit": "power_limit_min_w",
    "power.max_limit": "power_limit_max_w",
    "memory.total": "memory_total_bytes",
}
_IDENTITY_UNITS = {
    "clocks.max.sm": ("MHz", 1), "clocks.max.memory": ("MHz", 1), "clocks.max.mem": ("MHz", 1), "memory.total": ("MiB", 2**20),
    "power.limit": ("W", 1), "power.default_limit": ("W", 1), "power.min_limit": ("W", 1), "power.max_limit": ("W", 1),
}  # fmt: skip

# Values of switches and reasons, as nvidia-smi spells them.
_WORDS = {"Active": 1.0, "Not Active": 0.0, "Enabled": 1.0, "Disabled": 0.0}
_NUMBER = re.compile(r"(-?\d{1,18}(?:\.\d{1,9})?)(?: ([A-Za-z%]+))?", re.ASCII)
_SIGNED = ("temperature.gpu", "temperature.memory", "temperature.gpu.tlimit")


def plain(cell: str) -> str:
    """Return a header cell's column name, in lower case and without the unit."""
    return cell.partition("[")[0].strip().lower()


def is_absent(cell: str) -> bool:
    """Return True for a cell without a value: empty, ``N/A``, ``Not Supported``, or in brackets as ``[Unknown Error]``."""
    return not cell or cell.startswith("[") or cell in ("N/A", "Not Supported")


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """One column of a log: name, unit that the cells may contain, and factor to the signal's unit."""

    name: str
    unit: str = ""
    scale: float = 1.0

    @staticmethod
    def of(where: str, cell: str) -> ColumnReader:
        """Return the reader of a header's cell; an unknown column has no unit.

        Raises UsageError: for a wrong unit.
        """
        name = plain(cell)
        meaning = SIGNAL_COLUMNS.get(name)
        unit, scale = (meaning.unit, meaning.scale) if meaning else _IDENTITY_UNITS.get(name, ("", 1))
        if name in REASON_COLUMNS:
            unit = _SWITCH
        found = cell.partition("[")[2].rstrip("]").strip()
        if found and unit and unit not in (_SWITCH, "mask") and found != unit:
            raise UsageError(f"{where}: expected {name} in [{unit}], found [{found}]")
        return ColumnReader(name, unit, scale)

    def read(self, where: str, cell: str) -> str | int | float:
        """Return an identity cell: text, or a number if the column has a unit.

        Raises UsageError: as ``number``.
        """
        if self.name not in _IDENTITY_UNITS:
            return cell
        value = self.number(where, cell)
        return value if self.unit == "W" else round(value)

    def number(self, where: str, cell: str) -> float:
        """Return the cell in the signal's unit; NaN if nvidia-smi has no value.

        Raises UsageError: for another form or unit, and for an impossible number.
        """
        if is_absent(cell):
            return math.nan
        if self.unit == _SWITCH:
            if cell not in _WORDS:
                raise self._wrong(where, cell, f"one of {', '.join(_WORDS)} ({nearest(cell, _WORDS)})")
            return _WORDS[cell]
        if self.unit == "mask":
            if not re.fullmatch(r"0x[0-9A-Fa-f]{1,16}", cell):
                raise self._wrong(where, cell, "a mask such as 0x0000000000000004")
            return float(int(cell, 16))
        match = _NUMBER.fullmatch(cell)
        if not match or (match[2] or self.unit) != self.unit:
            raise self._wrong(where, cell, f"a number of {self.unit}" if self.unit else "a number")
        value = float(match[1])
        if value < 0 and self.name not in _SIGNED:
            raise self._wrong(where, cell, "a number of at least 0")
        if self.unit == "%" and value > 100:
            raise self._wrong(where, cell, "at most 100 %")
        return value * self.scale

    def _wrong(self, where: str, cell: str, expected: str) -> UsageError:
        shown = "".join(c if c.isprintable() else "?" for c in cell[:60])
        return UsageError(f"{where}, {self.name}: expected {expected}, found {shown!r}")
