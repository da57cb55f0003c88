"""The probes of a real instance: clock under light work, copy, GEMM, launch latency and stamps, on the first visible GPU."""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np

from annotate.budget import Number
from annotate.evidence import Timings
from annotate.stats.intervals import median_interval
from annotate.times.clock_sensitivity import Sensitivity, sensitivity
from annotate.verdict import Verdict
from gpuwatch.comparing import selftest
from gpuwatch.comparing.qualification import Amount, StampsSeen
from gpuwatch.config.settings import Settings
from gpuwatch.cuda.driver import checked, current_driver, load_kernel, raw_stream
from gpuwatch.errors import GpuwatchError
from gpuwatch.host.processes import contents
from gpuwatch.measuring.benchmark import bench
from gpuwatch.measuring.environment import BenchEnvironment
from gpuwatch.measuring.measurement import Measurement
from gpuwatch.process import torch_state
from gpuwatch.timers import HostTimer, Timer, TimingPlan

GEMM_SIZE = 8192  # reaches the power cap of boards that have one, and is long enough to hide the launch
_COPY_BYTES = 1 << 30
_SPINS_COUNT = 15
_LAUNCHES_COUNT = 100_000  # about one second, to include the host's periodic work
_OF_GEMM = ("gemm_s", "gemm_clock_mhz", "gemm_at_clock_s")
_OF_STAMPS = ("light_clock_mhz", "gemm_clock_mhz", "gemm_at_clock_s", "launch_s")  # these need cuda-bindings


@dataclass(slots=True)
class Probed:
    """The results of the probes that ran."""

    uuid: str | None = None
    amounts: dict[str, Amount] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    stamps: StampsSeen | None = None
    verdicts: list[Verdict] = field(default_factory=list)
    software: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, amount: Amount | None, why: str) -> None:
        """Keep an amount, or the first reason for its absence."""
        if amount is None:
            self.missing.setdefault(name, why)
        else:
            self.amounts[name] = amount
            self.missing.pop(name, None)

    def put_gemm(self, verdict: Verdict, timings: Timings | None) -> None:
        """Keep the numbers of a GEMM window, with the number at one clock converted to the run's median clock.

        The model's reference clock can be far from the run's clock, where the exponent's error exceeds the differences
        between cards (docs/decisions/0088).
        """
        why = verdict.why or "the verdict has no such number"
        clock = None if timings is None or timings.sm_clock_mhz is None else Amount.of_series(timings.sm_clock_mhz)
        fit = None if timings is None else sensitivity(timings)
        at_clock = Amount.of(verdict, Number.MEDIAN_AT_CLOCK, fit.beta if isinstance(fit, Sensitivity) else None)
        self.put("gemm_s", Amount.of(verdict, Number.MEDIAN), why)
        self.put("gemm_clock_mhz", clock, "stamps gave no clock")
        self.put("gemm_at_clock_s", at_clock and at_clock.moved_to(clock.value if clock else None), why)


def open_cuda() -> tuple[Any | None, Any | None]:  # torch and cuda have no types
    """Create a context; return torch.cuda with torch, or else a replacement with None; two None if no package can be used.

    Raises GpuwatchError: when torch or cuda-bindings cannot use the GPU, for example one in exclusive use.
    """
    from gpuwatch.cuda.driver_cuda import DriverCuda

    try:
        torch = importlib.import_module("torch")
    except ImportError:
        torch = None
    try:
        if torch is not None and torch.cuda.is_available():
            torch.cuda.init()
            torch.empty(1, device="cuda")
            return torch.cuda, torch
        cuda = DriverCuda(importlib.import_module("cuda.bindings.driver"))
    except ImportError:
        return None, None
    except RuntimeError as error:
        why = str(error).partition("\n")[0]  # torch adds lines of advice
        raise GpuwatchError(f"selftest: expected a usable GPU, found: {why}; run `gpuwatch doctor` for the cause") from error
    torch_state.stand_in(cuda)
    return cuda, None


@contextmanager
def opened_events(cuda: Any) -> Iterator[Timer]:
    """Yield the timer of events and stamps, on torch's GPU or its replacement."""
    from gpuwatch.timers.event_timer import EventsTimer

    with closing(EventsTimer(cuda)) as timer:
        yield timer


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruments:
    """The GPU, driver and timer that the probes use; tests replace them."""

    open_cuda: Callable[[], tuple[Any | None, Any | None]] = open_cuda
    open_driver: Callable[[], Any | None] = current_driver
    open_timer: Callable[[Any], AbstractContextManager[Timer]] = opened_events
    environment: BenchEnvironment = field(default_factory=BenchEnvironment)
    launches_count: int = _LAUNCHES_COUNT


def run_probes(settings: Settings, say: Callable[[str], None], instruments: Instruments | None = None) -> Probed:
    """Run every probe that this Python can run; ``missing`` gives the reasons for the others.

    Raises GpuwatchError: as ``open_cuda``.
    """
    tools = instruments or Instruments()
    found = Probed()
    cuda, torch = tools.open_cuda()
    if cuda is None:
        why = "neither a torch with a usable GPU nor cuda-bindings is installed"
        found.missing = dict.fromkeys((*_OF_STAMPS, *_OF_GEMM, "copy_s"), why)
        return found
    device = tools.environment.gpu()
    found.uuid = device.device.uuid if device is not None else None
    found.software = _software(torch)
    driver = tools.open_driver()
    if driver is None:
        found.missing |= dict.fromkeys(_OF_STAMPS, "cuda-bindings is not installed")
    else:
        say(f"light clock and stamps: {_SPINS_COUNT} spins of 2 ms")
        with _refusals_noted(found, ("light_clock_mhz",)):
            _probe_clock(found, driver)
        say(f"launches: {tools.launches_count} of an empty kernel, each waited for")
        with _refusals_noted(found, ("launch_s",)):
            _probe_launches(found, driver, cuda, tools.launches_count)
    time = partial(_timed, cuda, settings, tools)
    say("copy: 1 GiB, 4 s after its warm-up")
    with _refusals_noted(found, ("copy_s",)), _copy(torch, driver) as copy:
        verdict = time(copy, "qualify: copy", (4.0, 5.0)).verdict
        found.verdicts.append(verdict)
        found.put("copy_s", Amount.of(verdict, Number.MEDIAN), verdict.why or "the verdict has no such number")
    if torch is None:
        found.missing |= dict.fromkeys(_OF_GEMM, "no torch with a usable GPU is installed")
        return found
    say(f"GEMM: {GEMM_SIZE}³ bf16, 8 s after its warm-up")
    with _refusals_noted(found, _OF_GEMM):
        measured = time(selftest.make_gemm(torch, GEMM_SIZE), "qualify: gemm", (8.0, 10.0))
        found.verdicts.append(measured.verdict)
        found.put_gemm(measured.verdict, measured.timings)
    return found


@contextmanager
def _refusals_noted(found: Probed, names: Sequence[str]) -> Iterator[None]:
    """Note the reason for a missing result when the driver or torch fails, for example for lack of memory."""
    try:
        yield
    except RuntimeError as error:
        for name in names:
            found.put(name, None, str(error).partition("\n")[0])


def _probe_clock(found: Probed, driver: Any) -> None:
    from gpuwatch.cuda.canary import spin_stamped

    seen = [each for _ in range(_SPINS_COUNT) if (each := spin_stamped(driver)) is not None]
    clocks = np.array([mhz for each in seen if (mhz := each.mean_mhz(0, 1)) is not None])
    if not len(clocks):
        found.missing["light_clock_mhz"] = "no SM wrote a stamp"
        return
    interval = median_interval(clocks)
    found.amounts["light_clock_mhz"] = Amount(value=float(interval.centre), half_ratio=float(interval.half_width_ratio))
    last = seen[-1]
    written = (last.at_ns > 0).all(axis=0)
    each_mhz = (last.cycles[1] - last.cycles[0])[written] * 1e3 / (last.at_ns[1] - last.at_ns[0])[written]
    apart_ratio = float(np.ptp(each_mhz) / np.median(each_mhz)) if len(each_mhz) else None
    found.stamps = StampsSeen(sms_count=last.at_ns.shape[1], seen_count=int(written.sum()), apart_ratio=apart_ratio)


def _probe_launches(found: Probed, driver: Any, cuda: Any, count: int) -> None:
    cycles = ctypes.c_uint64(0)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(cycles))
    at, kernel, stream = ctypes.addressof(arguments), load_kernel(driver, "gpuwatch_spin"), raw_stream()(cuda.current_device())

    def launch() -> None:
        checked(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, at, 0))

    timer = HostTimer(lambda: checked(driver.cuStreamSynchronize(stream)))
    plan = TimingPlan(calls=(launch,))
    timer.take(plan, count // 50)
    times = timer.take(plan, count).timings
    found.put("launch_s", Amount.of_series(times.took_s), "too few launches")


@contextmanager
def _copy(torch: Any, driver: Any) -> Iterator[Callable[[], object]]:
    """Yield a function that copies 1 GiB within the GPU's memory, by torch if it finds the GPU, else by the driver API."""
    if torch is not None:
        yield selftest.make_copy(torch)
        torch.cuda.empty_cache()
        return
    source = int(checked(driver.cuMemAlloc(2 * _COPY_BYTES)))
    stream = raw_stream()(0)
    try:
        yield lambda: checked(driver.cuMemcpyDtoDAsync(source + _COPY_BYTES, source, _COPY_BYTES, stream))
    finally:
        checked(driver.cuMemFree(source))


def _timed(
    cuda: Any, settings: Settings, instruments: Instruments, call: Callable[[], object], label: str, span_s: tuple[float, float]
) -> Measurement:
    least_s, most_s = span_s
    with instruments.open_timer(cuda) as timer:
        return bench(
            call,
            timer=timer,
            cache="warm",  # the buffers exceed every L2
            label=label,
            min_s=least_s,
            max_s=most_s,
            target_ratio=0.0005,
            warmup_max_s=6.0,
            progress=False,
            settings=settings,
            seams=instruments.environment,
        )


def _software(torch: Any) -> dict[str, str]:
    if torch is None:
        return {}
    cuda = str(torch.version.cuda)
    names = (f"nvidia-cublas-cu{cuda.partition('.')[0]}", "nvidia-cublas")
    library = next((f"cuBLAS {found}" for name in names if (found := _version(name))), None)
    return {"torch": str(torch.__version__), "cuda": cuda, "gemm": library or f"torch {torch.__version__} with CUDA {cuda}"}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def host_facts() -> dict[str, str]:
    """Return Python's version, this process's cores and, if known, the processor and whether the machine is virtual."""
    text = contents("/proc/cpuinfo") or ""
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.*)$", text, re.MULTILINE)
    found = {"cores": str(len(os.sched_getaffinity(0))), "python": sys.version.split()[0]}
    if model is not None:
        found["cpu"] = model[1].strip()
    if flags is not None:
        found["machine"] = "virtual" if "hypervisor" in flags[1].split() else "not virtual"
    return found
