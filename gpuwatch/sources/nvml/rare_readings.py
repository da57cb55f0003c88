"""Signals only for the metrics page: P-state, row remaps by cause, bytes on PCIe, NVLink, MIG instances.

No window's evidence needs these signals, so they belong to no lane, and their expensive calls delay no lane.
"""

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from gpuwatch import clock
from gpuwatch.interfaces import InstanceReading, RareReading
from gpuwatch.sources.nvml.binding import SUCCESS, Api, Handle, asked
from gpuwatch.sources.nvml.device_facts import BoardHandles
from gpuwatch.sources.nvml.fields import decoded
from gpuwatch.sources.nvml.gpm import Gpm

_EVERY_LINK = 0xFFFF_FFFF  # a field's scope that means all NVLinks together
_PSTATES_COUNT = 16  # P0 to P15; 32 is "unknown"
_MIB, _KIB = 1 << 20, 1 << 10
_LINKS_COUNT = 36  # NVML_NVLINK_MAX_LINKS; the loop ends earlier, at the first link that the driver refuses

# NVLink counters: the binding's constants, by the name in the reading.  Throughput counters are in KiB.
_ERRORS: Mapping[str, str] = {
    "crc_flit": "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "crc_data": "NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "replay": "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "recovery": "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
}
_BYTES: Mapping[str, str] = {
    "sent": "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX",
    "received": "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX",
}
# PCIe throughput from the performance monitor, in MiB/s.  nvmlDeviceGetPcieThroughput blocks for 21 ms, and the 32-bit byte
# counters (fields 197 and 198) wrap within 80 ms (docs/decisions/0089).
_PCIE: Mapping[str, str] = {"sent": "NVML_GPM_METRIC_PCIE_TX_PER_SEC", "received": "NVML_GPM_METRIC_PCIE_RX_PER_SEC"}
_ACTIVITIES: Mapping[str, str] = {
    "sm_activity_ratio": "NVML_GPM_METRIC_SM_UTIL",
    "sm_occupancy_ratio": "NVML_GPM_METRIC_SM_OCCUPANCY",
    "tensor_activity_ratio": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "dram_activity_ratio": "NVML_GPM_METRIC_DRAM_BW_UTIL",
}


class RareQuestions:
    """The rare readings of one board, with the state between two reads."""

    def __init__(self, api: Api, board: BoardHandles) -> None:
        self._api = api
        self._board = board
        self._handle = board.board_handle
        self._lock = threading.Lock()
        self._gpm = Gpm(api, board.uuid, self._handle)
        self._has_gpm: bool | None = None
        self._pcie_bytes: dict[str, float] = {}
        self._instances: dict[str, Gpm] = {}  # by UUID of the instance

    def read(self) -> RareReading:
        """Read the board and its MIG instances.

        Raises DeviceLostError, SourceGoneError: when the GPU or the driver is gone.
        """
        with self._lock:
            begin_ns = clock.now_ns()
            values = {**self._state(), **self._pcie(), **self._links()}
            instances = tuple(self._partitions())
            end_ns = clock.now_ns()
        return RareReading(uuid=self._board.uuid, at_ns=end_ns, took_ns=end_ns - begin_ns, instances=instances, **values)

    def close(self) -> None:
        for gpm in (self._gpm, *self._instances.values()):
            gpm.close()

    def _asked(self, function: str, *arguments: Any) -> Any:
        return asked(self._api, function, *arguments, uuid=self._board.uuid)

    def _state(self) -> dict[str, Any]:
        state = self._asked("nvmlDeviceGetPerformanceState", self._handle)
        rows = self._asked("nvmlDeviceGetRemappedRows", self._handle)
        return {
            "performance_state": state if state is not None and state < _PSTATES_COUNT else None,
            "remapped_corrected_count": rows[0] if rows else None,
            "remapped_uncorrected_count": rows[1] if rows else None,
        }

    def _pcie(self) -> dict[str, Any]:
        """Return the total bytes in each direction: the monitor's means, integrated over intervals without gaps."""
        if self._has_gpm is None:
            self._has_gpm = self._gpm.supported() and all(hasattr(self._api, metric) for metric in _PCIE.values())
        if not self._has_gpm:
            return {}
        metrics = {direction: getattr(self._api, metric) for direction, metric in _PCIE.items()}
        interval_ns, means = self._gpm.means(tuple(metrics.values()))
        for direction, metric in metrics.items():
            if metric in means:
                moved_bytes = max(0.0, means[metric]) * _MIB * interval_ns / 1e9
                self._pcie_bytes[direction] = self._pcie_bytes.get(direction, 0.0) + moved_bytes
        return {f"pcie_{direction}_bytes": round(total) for direction, total in self._pcie_bytes.items()}

    def _links(self) -> dict[str, Any]:
        states: list[bool] = []
        while len(states) < _LINKS_COUNT:
            state = self._asked("nvmlDeviceGetNvLinkState", self._handle, len(states))
            if state is None:
                break
            states.append(bool(state))
        if not states:
            return {}
        counted = self._fields((*_ERRORS.values(), *_BYTES.values()))
        return {
            "nvlink_active_count": sum(states),
            "nvlink_inactive_count": len(states) - sum(states),
            "nvlink_errors_count": {kind: counted[name] for kind, name in _ERRORS.items() if name in counted},
            **{f"nvlink_{way}_bytes": counted[name] * _KIB for way, name in _BYTES.items() if name in counted},
        }

    def _fields(self, names: tuple[str, ...]) -> dict[str, int]:
        """Return the answered fields, each over all links, by the constants' names."""
        known = [(name, getattr(self._api, name)) for name in names if hasattr(self._api, name)]
        found = self._asked("nvmlDeviceGetFieldValues", self._handle, [(number, _EVERY_LINK) for _, number in known])
        values: dict[str, int] = {}
        for (name, _), entry in zip(known, found or (), strict=False):
            value = decoded(entry.valueType, entry.value.ullVal)
            if entry.nvmlReturn == SUCCESS and entry.timestamp and value is not None:
                values[name] = int(value)
        return values

    def _partitions(self) -> Iterator[InstanceReading]:
        """Yield the readings of the current MIG instances, and close the samples of removed instances."""
        mode = self._asked("nvmlDeviceGetMigMode", self._handle)
        slots_count = self._asked("nvmlDeviceGetMaxMigDeviceCount", self._handle) if mode and mode[0] else 0
        present: dict[str, Gpm] = {}
        for slot in range(slots_count or 0):
            handle = self._asked("nvmlDeviceGetMigDeviceHandleByIndex", self._handle, slot)
            uuid = self._asked("nvmlDeviceGetUUID", handle) if handle is not None else None
            if uuid is None:
                continue
            number = self._asked("nvmlDeviceGetGpuInstanceId", handle)
            present[uuid] = self._instances.get(uuid) or Gpm(self._api, uuid, self._handle, number)
            yield self._instance(uuid, handle, number, present[uuid])
        for gone in self._instances.keys() - present.keys():
            self._instances[gone].close()
        self._instances = present

    def _instance(self, uuid: str, handle: Handle, number: int | None, gpm: Gpm) -> InstanceReading:
        memory = self._asked("nvmlDeviceGetMemoryInfo", handle)
        listed = self._asked("nvmlDeviceGetComputeRunningProcesses", handle)
        metrics = {name: getattr(self._api, metric) for name, metric in _ACTIVITIES.items() if hasattr(self._api, metric)}
        means = gpm.means(tuple(metrics.values()))[1] if number is not None else {}
        return InstanceReading(
            uuid=uuid,
            name=self._asked("nvmlDeviceGetName", handle) or "unknown",
            gpu_instance_id=number,
            compute_instance_id=self._asked("nvmlDeviceGetComputeInstanceId", handle),
            memory_total_bytes=memory.total if memory else None,
            memory_used_bytes=memory.used if memory else None,
            processes_count=len(listed) if listed is not None else None,
            **{name: means[metric] / 100 for name, metric in metrics.items() if metric in means},
        )
