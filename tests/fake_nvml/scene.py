"""The answers of the mock driver.  A test builds and changes the answers while programs read, and reads the counts of calls."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fake_nvml import layout
from tests.fake_nvml.layout import CLASSES, DEFAULTS, FIELDS, FUNCTIONS, SIGNALS

NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND = 3, 4, 13
UNINITIALIZED, DRIVER_NOT_LOADED, GPU_IS_LOST, RESET_REQUIRED, VERSIONS_DIFFER = 1, 9, 15, 16, 18
NOTHING_FILLED = -1  # for a field: success without a timestamp
XID, DOUBLE_BIT = 0x8, 0x2

# Values that change only at a refresh by the driver, and the period of refreshes on data-centre boards.
_PAGED_NS = {
    **dict.fromkeys(("sm_clock_mhz", "mem_clock_mhz", "power_mw", "power_average_mw", "power_cap_ns"), 100_000_000),
    **dict.fromkeys(("sync_boost_ns", "sw_thermal_ns", "hw_thermal_ns", "power_brake_ns", "energy_mj"), 100_000_000),
    **dict.fromkeys(("utilization_percent", "mem_utilization_percent"), 208_000_000),
    "temperature_c": 200_000_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A process on a GPU.  A ``hidden`` process is only in the utilisation record, like one in another container."""

    pid: int
    memory_bytes: int = 1 << 30
    sm_percent: int = 0
    mem_percent: int = 0
    instance_id: int = 0xFFFF_FFFF
    compute_id: int = 0xFFFF_FFFF
    compute: bool = True
    graphics: bool = False
    mps: bool = False
    hidden: bool = False

    @property
    def lists(self) -> int:
        return 0 if self.hidden else self.compute | self.graphics << 1 | self.mps << 2


class Gpu:
    """One board of a scene."""

    def __init__(self, scene: layout.Scene, index: int) -> None:
        self._scene = scene
        self._gpu = scene.gpus[index]
        self.index = index

    @property
    def uuid(self) -> str:
        return str(self._gpu.uuid.decode())

    @property
    def name(self) -> str:
        return str(self._gpu.name.decode())

    # The GPU's numbers

    def set(self, **values: float) -> None:
        """Set constant numbers from now on."""
        for name, value in values.items():
            self._show(name, value, 0.0, 0.0)

    def moves(self, name: str, rate: float) -> None:
        """Increase this number from its present value by this rate per second."""
        self._show(name, self.now(name), rate, 0.0)

    def ripples(self, name: str, by: float) -> None:
        """Change this number at each refresh, by at most this distance from its value."""
        self._show(name, self.now(name), 0.0, by)

    def refreshes(self, name: str, period_ms: float) -> None:
        self._signal(name).refresh_ns = round(period_ms * 1e6)

    def now(self, name: str) -> float:
        """Return a number's present value, without ripple and refresh."""
        signal = self._signal(name)
        line = signal.lines[signal.shown & 1]
        return float(line.value + line.rate * (time.monotonic_ns() - line.since_ns) / 1e9)

    def _signal(self, name: str) -> layout.Signal:
        return self._gpu.signals[SIGNALS[name]]  # type: ignore[no-any-return]  # ctypes' arrays are untyped

    def _show(self, name: str, value: float, rate: float, ripple: float) -> None:
        signal = self._signal(name)
        line = signal.lines[~signal.shown & 1]
        line.value, line.rate, line.ripple, line.since_ns = value, rate, ripple, time.monotonic_ns()
        signal.shown += 1

    # Processes on the GPU

    @property
    def clients(self) -> tuple[Client, ...]:
        listed = self._gpu.processes[self._gpu.shown & 1]
        return tuple(
            Client(
                pid=entry.pid, memory_bytes=entry.memory_bytes, sm_percent=entry.sm_percent, mem_percent=entry.mem_percent,
                instance_id=entry.instance_id, compute_id=entry.compute_id, compute=bool(entry.lists & 1),
                graphics=bool(entry.lists & 2), mps=bool(entry.lists & 4), hidden=not entry.lists,
            )
            for entry in listed.entries[: listed.count]
        )  # fmt: skip

    @clients.setter
    def clients(self, clients: Sequence[Client]) -> None:
        assert len(clients) <= layout.PROCESSES, f"at most {layout.PROCESSES} processes, found {len(clients)}"
        listed = self._gpu.processes[~self._gpu.shown & 1]
        for entry, client in zip(listed.entries, clients, strict=False):
            entry.pid, entry.lists, entry.memory_bytes = client.pid, client.lists, client.memory_bytes
            entry.instance_id, entry.compute_id = client.instance_id, client.compute_id
            entry.sm_percent, entry.mem_percent = client.sm_percent, client.mem_percent
        listed.count = len(clients)
        self._gpu.shown += 1
        self.set(memory_used_bytes=sum(client.memory_bytes for client in clients))

    def partition(self, *names: str, memory_bytes: int = 18 << 30) -> tuple[str, ...]:
        """Turn MIG on with these instances; return their UUIDs."""
        self.set(mig_mode=1)
        uuids = []
        for slot, name in enumerate(names):
            instance = self._gpu.instances[slot]
            uuids.append(f"MIG-{self.index:08x}-0000-0000-0000-{slot:012x}")
            instance.uuid, instance.name = uuids[-1].encode(), f"{self.name} MIG {name}".encode()
            instance.instance_id, instance.compute_id, instance.cores_count = 7 + slot, 0, 2048
            instance.memory_total_bytes, instance.memory_used_bytes = memory_bytes, 40 << 20
            instance.present = 1
        return tuple(uuids)

    def set_instance(self, slot: int, **values: float) -> None:
        """Set memory in use and activities of a MIG instance, by the names in the layout."""
        for name, value in values.items():
            setattr(self._gpu.instances[slot], name, int(value) if name.endswith("_bytes") else value)

    def unpartition(self) -> None:
        """Turn MIG off and remove the instances."""
        self.set(mig_mode=0)
        for instance in self._gpu.instances:
            instance.present = 0

    # Faults of the GPU

    def lose(self, code: int = GPU_IS_LOST) -> None:
        """Make every call for this GPU fail with this code."""
        self._gpu.code = code

    def come_back(self, *, attach_anew: bool = False) -> None:
        """Restore this GPU under new handles; with ``attach_anew``, only for processes that attach to the driver again."""
        self._gpu.attach_anew, self._gpu.absent = attach_anew, 0
        self._gpu.generation += 1
        self._gpu.code = 0

    def vanish(self) -> None:
        """Remove this GPU from the driver's list."""
        self._gpu.absent = 1

    def fail(self, function: str, code: int) -> None:
        """Set the error code of a function, or of a class of functions, for this GPU; 0 restores success."""
        for call in _calls(self._gpu.calls, function):
            call.code = code

    def deny(self, signal: str, code: int = NOT_SUPPORTED) -> None:
        """Set the error code of every call and field that gives this number."""
        self._signal(signal).code = code

    def deny_field(self, field: int, code: int = NOT_SUPPORTED) -> None:
        self._gpu.field_codes[FIELDS[field]] = code

    def hang(self, function: str = "all") -> None:
        """Block calls of a function, of a class or of all functions until ``release``."""
        for call in _calls(self._gpu.calls, function):
            call.hangs = 1

    def release(self) -> None:
        for call in _calls(self._gpu.calls, "all"):
            call.hangs = 0

    def calls_count(self, function: str = "all") -> int:
        """Return the number of calls for this GPU."""
        return sum(int(call.calls_count) for call in _calls(self._gpu.calls, function))

    def xid(self, number: int) -> None:
        self.event(XID, number)

    def event(self, kind: int, value: int) -> None:
        event = self._scene.events[self._scene.events_count % layout.EVENTS]
        event.gpu, event.kind, event.value = self.index, kind, value
        self._scene.events_count += 1


class Scene:
    """A mock driver's state in a file that the library maps."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._scene = layout.Scene.from_buffer(self._memory)
        assert self._scene.size == len(self._memory), f"{path}: expected a scene of this layout, found another size"
        self.gpus = tuple(Gpu(self._scene, index) for index in range(self._scene.gpus_count))

    def environment(self, library: Path) -> dict[str, str]:
        """Return the environment variables that make a program load the mock driver."""
        others = os.environ.get("LD_LIBRARY_PATH")
        paths = f"{library}:{others}" if others else str(library)
        return {"FAKE_NVML_SCENE": str(self.path), "LD_LIBRARY_PATH": paths}

    def unload(self, code: int = DRIVER_NOT_LOADED) -> None:
        """Unload the driver: every call returns this code."""
        self._scene.driver_code = code

    def load(self, *, stale_code: int = UNINITIALIZED) -> None:
        """Load the driver again; processes attached before get ``stale_code`` until they attach again."""
        self._scene.stale_code = stale_code
        self._scene.generation += 1
        self._scene.driver_code = 0

    def fail(self, function: str, code: int) -> None:
        """Set the error code of a function, or of a class of functions; 0 restores success."""
        for call in _calls(self._scene.calls, function):
            call.code = code

    def cost(self, function: str, us: float) -> None:
        """Set the CPU time per call of a function, or of a class; a call for a list's length costs the same."""
        for call in _calls(self._scene.calls, function):
            call.cost_ns = round(us * 1000)

    @contextmanager
    def hanging(self, function: str = "all") -> Iterator[None]:
        for call in _calls(self._scene.calls, function):
            call.hangs = 1
        try:
            yield
        finally:
            for call in _calls(self._scene.calls, function):
                call.hangs = 0

    def calls_count(self, function: str = "all") -> int:
        """Return the number of calls, with or without a GPU."""
        return sum(int(call.calls_count) for call in _calls(self._scene.calls, function))

    def called(self) -> dict[str, int]:
        """Return every called function with its number of calls."""
        counts = {name: int(self._scene.calls[number].calls_count) for name, number in FUNCTIONS.items()}
        return {name: count for name, count in counts.items() if count}


def create(path: Path, *, gpus: int = 8, name: str = "NVIDIA H200", driver_version: str = "580.159.04") -> Scene:
    """Create a scene with this number of idle boards; lone surrogates in the texts become raw bytes."""
    path.write_bytes(bytes(ctypes.sizeof(layout.Scene)))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        raw = layout.Scene.from_buffer(memory)
        _fill(raw, gpus, name, driver_version)
        del raw  # a mapped object would prevent the close
    return Scene(path)


def _fill(raw: layout.Scene, gpus: int, name: str, driver_version: str) -> None:
    begin_ns = time.monotonic_ns()
    raw.size, raw.epoch_ns, raw.stale_code = ctypes.sizeof(raw), begin_ns, UNINITIALIZED
    raw.driver_version, raw.nvml_version = os.fsencode(driver_version), os.fsencode(f"13.{driver_version}")
    raw.cuda_version = 13000
    raw.power_period_ns, raw.power_samples_count, raw.utilization_period_ns = 20_000_000, 119, 167_000_000
    raw.gpus_count = gpus
    for index in range(gpus):
        board = raw.gpus[index]
        board.uuid = f"GPU-{index:08x}-fa4e-fa4e-fa4e-{index:012x}".encode()
        board.name, board.serial, board.vbios = os.fsencode(name), f"165{index:010}".encode(), b"96.00.AF.00.01"
        board.domain, board.bus, board.device, board.pci_ids = 0, 0x18 + index, 0, 0x233510DE
        for signal, number in SIGNALS.items():
            board.signals[number].refresh_ns = _PAGED_NS.get(signal, 0)
            board.signals[number].lines[0].value = DEFAULTS[signal]
            board.signals[number].lines[0].since_ns = begin_ns
    raw.magic = layout.MAGIC  # written last: a library rejects a file without the magic number


def _calls(calls: Sequence[layout.Call], function: str) -> Iterable[layout.Call]:
    """Return the call records of a function, of a class, or of all functions."""
    if function in FUNCTIONS:
        return (calls[FUNCTIONS[function]],)
    known = {"all", *CLASSES.values()}
    assert function in known, f"expected a function of functions.def or one of {sorted(known)}, found {function!r}"
    return [calls[number] for name, number in FUNCTIONS.items() if function in ("all", CLASSES[name])]
