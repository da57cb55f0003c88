"""Tests that the driver's lists are complete, and that lists which fit into the buffer take one call."""

# ruff: noqa: N802 - some functions here replace those of the mock driver, which have the names of C functions

from __future__ import annotations

import ctypes
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.evidence import Visibility
from gpuwatch import clock
from gpuwatch.errors import DeviceLostError
from gpuwatch.sources.nvml import Nvml
from gpuwatch.sources.nvml.process_lists import Lists
from tests.gpuwatch.sources.nvml_double import INSUFFICIENT_SIZE, LOST, NOT_FOUND, UUID, Library, binding
from tests.waiting import PATIENCE_S

COMPUTE, SHARES, SAMPLES = (
    "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetSamples",
)  # fmt: skip
MPS = "nvmlDeviceGetMPSComputeRunningProcesses_v3"


def around(room: int) -> st.SearchStrategy[int]:
    """Return lengths of a list: a few, about the buffer's size, about twice that size, and up to 3000."""
    return st.integers(0, 3) | st.integers(room - 3, room + 3) | st.integers(2 * room - 3, 2 * room + 40) | st.integers(0, 3000)


def asked(library: Library, function: str, ask: Callable[[], Any]) -> tuple[Any, int]:
    """Return the result of ``ask``, and the number of calls of the driver function ``function``."""
    library.calls.clear()
    found = ask()
    return found, library.calls.count(function)


def processes(count: int) -> list[tuple[int, int]]:
    return [(1000 + number, number << 20) for number in range(count)]


@given(around(64), around(64))
def test_process_list_takes_at_most_two_calls(count: int, later_count: int) -> None:
    """One or two calls list all processes, and the source keeps an enlarged buffer."""
    library = Library(processes=processes(count))
    source = Nvml(binding(library))
    process_list, calls = asked(library, COMPUTE, lambda: source.read_process_list(UUID))
    assert [(each.pid, each.memory_bytes) for each in process_list.processes] == processes(count)
    assert calls == (1 if count <= 64 else 2)
    assert library.calls.count(MPS) == 1
    assert asked(library, COMPUTE, lambda: source.read_process_list(UUID))[1] == 1
    library.processes = processes(later_count)
    process_list, calls = asked(library, COMPUTE, lambda: source.read_process_list(UUID))
    assert [(each.pid, each.memory_bytes) for each in process_list.processes] == processes(later_count)
    assert calls == (1 if later_count <= max(64, count) else calls)
    assert calls <= 2


@given(around(256))
def test_utilisation_takes_at_most_two_calls(count: int) -> None:
    library = Library(utilization=[(1, 100, 1)])
    source = Nvml(binding(library))
    _, calls = asked(library, SHARES, lambda: source.read_process_list(UUID, utilization=True))
    assert calls == 1
    library.utilization = [(1000 + number, 200 + number, 1 + number % 100) for number in range(count)]
    process_list, calls = asked(library, SHARES, lambda: source.read_process_list(UUID, utilization=True))
    shares = {each.pid: round(100 * (each.utilization_ratio or 0)) for each in process_list.processes}
    assert shares == {pid: share for pid, _, share in library.utilization}
    assert calls == (1 if count <= 256 else 2)
    assert asked(library, SHARES, lambda: source.read_process_list(UUID, utilization=True))[1] == 1


def record(count: int) -> list[tuple[int, int]]:
    """Return ``count`` power samples up to now, 0.1 ms and a milliwatt apart."""
    newest_us = (clock.now_ns() + clock.wall_offset_ns()) // 1000
    return [(newest_us - (count - number) * 100, 100_000 + number) for number in range(count)]


@given(around(128))
def test_power_record_that_fills_the_buffer_is_read_again(count: int) -> None:
    library = Library(samples=record(count))
    source = Nvml(binding(library))
    gained, calls = asked(library, SAMPLES, lambda: source.power_record(UUID))
    assert gained.sample_w == tuple(draw_mw / 1000 for _, draw_mw in library.samples)
    # A truncated record looks like a record that just fits, so the buffer doubles until the driver leaves room.
    assert calls == 1 + sum(count >= 128 << step for step in range(10))
    library.samples += record(1)
    assert asked(library, SAMPLES, lambda: source.power_record(UUID))[0].sample_w == (100.0,)
    assert library.calls.count(SAMPLES) == 1


@given(st.integers(0, 6), st.integers(0, 2**64 - 1))
def test_list_samples_keep_type_and_raw_value(kind: int, raw: int) -> None:
    """``samples`` returns the value type and all 64 bits of the raw value."""

    class Odd(Library):
        def _nvmlDeviceGetSamples(
            self, handle: Any, sampling: Any, since: Any, value_type: Any, number: Any, found: Any
        ) -> int:
            value_type._obj.value, number._obj.value = kind, 1
            entry = pynvml.c_nvmlSample_t.from_buffer(found)
            entry.timeStamp, entry.sampleValue.ullVal = since.value + sampling.value, raw
            return 0

    assert Lists(binding(Odd()), None).samples(5, 2**63) == (kind, [(2**63 + 5, raw)])


class Growing(Library):
    """A mock driver whose list of processes grows with each call."""

    more: int = 0

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, number: Any, found: Any) -> int:
        code = super()._nvmlDeviceGetComputeRunningProcesses_v3(handle, number, found)
        self.processes = processes(len(self.processes) + self.more)
        return code


@given(st.integers(0, 300), st.sampled_from([0, 1, 30, 33, 100, 700]))
def test_growing_list_is_complete_as_of_the_last_call(count: int, more: int) -> None:
    library = Growing(processes=processes(count))
    library.more = more
    source = Nvml(binding(library))
    process_list, calls = asked(library, COMPUTE, lambda: source.read_process_list(UUID))
    assert [each.pid for each in process_list.processes] == [pid for pid, _ in processes(count + (calls - 1) * more)]
    assert process_list.visibility != Visibility.UNKNOWN
    assert calls <= (2 if more <= 32 else 7)


def test_list_that_never_fits_has_unknown_visibility() -> None:
    """A list that is always too long ends after fewer than 10 calls, with unknown visibility."""
    library = Library(errors={COMPUTE: INSUFFICIENT_SIZE, SHARES: INSUFFICIENT_SIZE, SAMPLES: INSUFFICIENT_SIZE})
    source = Nvml(binding(library))
    process_list, calls = asked(library, COMPUTE, lambda: source.read_process_list(UUID, utilization=True))
    assert (process_list.processes, process_list.visibility) == ((), Visibility.UNKNOWN)
    assert calls < 10
    assert source.power_record(UUID).sample_at_ns == ()
    assert asked(library, COMPUTE, lambda: source.read_process_list(UUID))[1] == 1, "the source keeps the largest buffer"


def test_list_with_an_invalid_length_is_not_read() -> None:
    """A length of 2³² − 1 ends after two calls, with unknown visibility."""

    class Wild(Library):
        def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, number: Any, found: Any) -> int:
            number._obj.value = 2**32 - 1
            return INSUFFICIENT_SIZE

    library = Wild()
    process_list, calls = asked(library, COMPUTE, lambda: Nvml(binding(library)).read_process_list(UUID))
    assert (process_list.visibility, calls) == (Visibility.UNKNOWN, 2)


def test_process_memory_not_available_is_none() -> None:
    library = Library(processes=[(1, 2**64 - 1), (2, 0)])
    process_list = Nvml(binding(library)).read_process_list(UUID)
    assert [(each.pid, each.memory_bytes) for each in process_list.processes] == [(1, None), (2, 0)]


@pytest.mark.parametrize("function", [COMPUTE, SHARES, SAMPLES])
def test_list_function_missing_from_the_library_is_unanswered(function: str) -> None:
    """Without the compute list the visibility is unknown, and without the power record there are no samples."""
    source = Nvml(binding(Library(missing={function}, processes=[(1, 1)], samples=record(3))))
    process_list = source.read_process_list(UUID, utilization=True)
    assert (process_list.visibility == Visibility.UNKNOWN) is (function == COMPUTE)
    assert len(source.power_record(UUID).sample_w) == (0 if function == SAMPLES else 3)


@pytest.mark.parametrize("function", [COMPUTE, SHARES, SAMPLES])
def test_each_list_can_report_a_lost_gpu(function: str) -> None:
    source = Nvml(binding(Library(errors={function: LOST})))
    with pytest.raises(DeviceLostError):
        (source.read_process_list(UUID, utilization=True), source.power_record(UUID))


@pytest.mark.parametrize("code", [0, NOT_FOUND])
def test_empty_utilization_record_takes_one_call(code: int) -> None:
    """An empty utilisation record takes one call, with the code Success or NotFound."""

    class Empty(Library):
        def _nvmlDeviceGetProcessUtilization(self, handle: Any, found: Any, number: Any, since: Any) -> int:
            number._obj.value = 0
            return code

    library = Empty(processes=[(1, 1)])
    process_list, calls = asked(library, SHARES, lambda: Nvml(binding(library)).read_process_list(UUID, utilization=True))
    assert ([each.utilization_ratio for each in process_list.processes], calls) == ([None], 1)


def test_process_lists_of_two_threads_are_separate() -> None:
    together = threading.Barrier(2, timeout=PATIENCE_S)

    class Slow(Library):
        def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, number: Any, found: Any) -> int:
            together.wait()
            code = super()._nvmlDeviceGetComputeRunningProcesses_v3(handle, number, found)
            ctypes.cast(found, ctypes.POINTER(ctypes.c_uint))[0] = threading.get_native_id()
            together.wait()  # both buffers are filled before a thread reads its buffer
            return code

    source = Nvml(binding(Slow(processes=[(0, 7)])))
    source.devices()
    told: list[tuple[int, int]] = []

    def ask() -> None:
        told.extend((threading.get_native_id(), process.pid) for process in source.read_process_list(UUID).processes)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(told) == 2
    assert all(mine == pid for mine, pid in told)


def _median_us(ask: Callable[[], Any], turns: int = 100) -> float:
    took_s = []
    for _ in range(turns):
        begin_s = time.perf_counter()
        ask()
        took_s.append(time.perf_counter() - begin_s)
    return statistics.median(took_s) * 1e6


@pytest.mark.gpu
def test_gpu_lists_equal_the_bindings_lists() -> None:
    """The lists of one call agree with the binding's lists of two calls; the test prints the times of both."""
    torch = pytest.importorskip("torch")
    work = torch.ones(4096, 4096, device="cuda:0")
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    lists, power = Lists(pynvml, handle), pynvml.NVML_TOTAL_POWER_SAMPLES
    until_ns = clock.now_ns() + 2_000_000_000
    while clock.now_ns() < until_ns:
        work = work @ work * 0
        torch.cuda.synchronize()
    ours = [pid for pid, _ in lists.processes(COMPUTE)]
    assert ours == [entry.pid for entry in getattr(pynvml, COMPUTE)(handle)]
    shares = {pid for pid, stamp_us, _ in lists.utilization(0) if stamp_us}
    assert shares >= {entry.pid for entry in pynvml.nvmlDeviceGetProcessUtilization(handle, 0) if entry.timeStamp}
    stamps_us = [stamp_us for stamp_us, _ in lists.samples(power, 0)[1]]
    theirs_us = [entry.timeStamp for entry in pynvml.nvmlDeviceGetSamples(handle, power, 0)[1]]
    assert len(set(stamps_us) & set(theirs_us)) > len(theirs_us) // 2, (len(stamps_us), len(theirs_us))
    asks: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        COMPUTE: (lambda: lists.processes(COMPUTE), lambda: getattr(pynvml, COMPUTE)(handle)),
        SHARES: (lambda: lists.utilization(0), lambda: pynvml.nvmlDeviceGetProcessUtilization(handle, 0)),
        SAMPLES: (lambda: lists.samples(power, 0), lambda: pynvml.nvmlDeviceGetSamples(handle, power, 0)),
    }
    for name, (one, two) in asks.items():
        print(f"{name}: {_median_us(one):.0f} us, through the binding {_median_us(two):.0f}; {len(ours)} processes")
    pynvml.nvmlShutdown()
