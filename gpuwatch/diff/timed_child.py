"""The timing process: checks and times one pair of kernels, so that a fault or an endless loop ends only this process.

The process reads a job from standard input and writes messages, one JSON object per line, to a given file descriptor.
After the times, each input line runs one side alone.  ``--once SIDE FILE`` runs one side for a profiler.
"""

import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import IO, Any

import msgspec

from annotate.evidence import Device
from gpuwatch import clock
from gpuwatch.cuda.driver import checked
from gpuwatch.cuda.driver_cuda import DriverCuda
from gpuwatch.diff.kernel_counters import REPEATS
from gpuwatch.diff.kernel_device import KernelDevice, KernelFault
from gpuwatch.diff.pair_run import STEP_LIMIT_S, ReadyPair, run_pair, set_up
from gpuwatch.diff.timed_pair import TimedPair
from gpuwatch.diff.timing_job import CallJob, TimingJob
from gpuwatch.errors import UsageError
from gpuwatch.measuring.environment import current_device
from gpuwatch.process import torch_state

LENGTH_BYTES = 8  # size of the length that precedes the job
ONCE = "--once"
_ALONE_COUNT = 20  # launches between two readings of the host's clock


class ChildMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of the timing process: the next step with its time limit, or a result."""

    doing: str = ""
    limit_s: float = 0.0
    usage: str = ""  # the message of a UsageError
    fault: str = ""  # the message of a KernelFault
    timed: TimedPair | None = None
    device: Device | None = None
    has_run_alone: bool = False


def main() -> None:
    """Run the job on standard input, or one side of a job in a file."""
    if sys.argv[1] == ONCE:
        _run_once(sys.argv[2], Path(sys.argv[3]))
        return
    with os.fdopen(int(sys.argv[1]), "wb") as out:
        try:
            _serve(out)
        except UsageError as error:
            _write(out, ChildMessage(usage=str(error)))
        except KernelFault as fault:
            _write(out, ChildMessage(fault=str(fault)))
        out.flush()
        os._exit(0)  # destructors would wait for a lost context


def _serve(out: IO[bytes]) -> None:
    commands = sys.stdin.buffer
    size = int.from_bytes(commands.read(LENGTH_BYTES), "little")
    job = msgspec.msgpack.decode(commands.read(size), type=TimingJob)
    device, cuda = _open_device(job)

    def say(words: str, limit_s: float) -> None:
        _write(out, ChildMessage(doing=words, limit_s=limit_s))

    with set_up(job, device, say) as ready:
        timed = run_pair(job, device, cuda, ready, say)
        found = current_device()
        _write(out, ChildMessage(timed=timed, device=found.device if found is not None else None))
        for line in commands:
            side, seconds = line.decode().split()
            _write(out, ChildMessage(doing=f"{side.upper()} alone", limit_s=STEP_LIMIT_S + 2 * float(seconds)))
            _run_alone(ready, side, float(seconds), device)
            _write(out, ChildMessage(has_run_alone=True))


def _run_alone(ready: ReadyPair, side: str, seconds: float, device: KernelDevice) -> None:
    launch, end_ns = ready.calls[side.upper()], clock.now_ns() + int(seconds * 1e9)
    while clock.now_ns() < end_ns:
        for _ in range(_ALONE_COUNT):
            launch()
        device.synchronize()


def _run_once(side: str, file: Path) -> None:
    from cuda.bindings import driver

    job = msgspec.msgpack.decode(file.read_bytes(), type=TimingJob)
    device, _ = _open_device(job)
    with set_up(job, device, lambda _words, _limit_s: None) as ready:
        checked(driver.cuProfilerStart())
        for _ in range(REPEATS):
            ready.calls[side.upper()]()
        device.synchronize()
        checked(driver.cuProfilerStop())


def _open_device(job: TimingJob) -> tuple[KernelDevice, Any]:
    from cuda.bindings import driver

    try:
        if any(isinstance(side, CallJob) for side in (job.a, job.b)) or job.terms.inputs:
            with contextlib.suppress(ImportError):
                torch = importlib.import_module("torch")
                torch.zeros(1, device="cuda")
                return KernelDevice(driver, torch.cuda), torch.cuda
        cuda = DriverCuda(driver)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"expected a usable GPU, found: {error}") from error
    torch_state.stand_in(cuda)
    return KernelDevice(driver, cuda), cuda


def _write(out: IO[bytes], message: ChildMessage) -> None:
    out.write(msgspec.json.encode(message) + b"\n")
    out.flush()


if __name__ == "__main__":
    main()
