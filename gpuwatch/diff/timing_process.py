"""Control of the timing process: its start with a job, its messages, and its end when a step takes too long."""

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Literal

import msgspec

from annotate.evidence import Device
from gpuwatch import clock
from gpuwatch.diff.timed_child import LENGTH_BYTES, ONCE, ChildMessage
from gpuwatch.diff.timed_pair import TimedPair, incomparable
from gpuwatch.diff.timing_job import TimingJob, with_launches
from gpuwatch.errors import SourceGoneError, UsageError

START_LIMIT_S = 120.0  # importing torch from a cold disk can take a minute
COMMAND = (sys.executable, "-P", "-m", "gpuwatch.diff.timed_child")
PROGRESS_S = 10.0  # between lines about a step that lasts
_KILL_S = 10.0  # the driver needs seconds to end a context with a running kernel
_OUTPUT_LENGTH = 300


class TimingProcess:
    """A pair of kernels in a separate process; a context manager, which ends the process.

    The pair is INCOMPARABLE if a kernel fails or does not end in time.  While a step lasts, ``say`` receives a line every
    ``progress_s``.
    """

    def __init__(
        self, job: TimingJob, say: Callable[[str], None], command: Sequence[str] = COMMAND, progress_s: float = PROGRESS_S
    ) -> None:
        self._job, self._say, self._command, self._progress_s = job, say, command, progress_s
        self._device: Device | None = None
        self._rest = b""
        self._job_file: IO[bytes] | None = None

    def __enter__(self) -> "TimingProcess":
        receiving, sending = os.pipe()
        self._printed = printed = tempfile.TemporaryFile()
        self._answers: IO[bytes] = os.fdopen(receiving, "rb", buffering=0)
        try:
            command = [*self._command, str(sending)]
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=printed, stderr=printed, pass_fds=(sending,))
        finally:
            os.close(sending)
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        with suppress(subprocess.TimeoutExpired):  # the driver still ends the kernel: no need to wait
            self._child.wait(_KILL_S)
        for each in (self._answers, self._printed, self._child.stdin, self._job_file):
            if each is not None:
                each.close()

    def time(self) -> TimedPair:
        """Check and time the pair.

        Raises UsageError: for an invalid request, and when the process ends without times.
        """
        data = msgspec.msgpack.encode(self._job)
        self._send(len(data).to_bytes(LENGTH_BYTES, "little") + data)
        last = self._wait("start", START_LIMIT_S)
        if last.timed is not None:
            self._device = last.device
            self._job = with_launches(self._job, last.timed.launches)
        return last.timed or incomparable(last.fault)

    @property
    def device(self) -> Device:
        """Return the GPU, known after ``time()``.

        Raises SourceGoneError: when the driver does not describe the GPU.
        """
        if self._device is None:
            raise SourceGoneError("the driver does not describe this GPU")
        return self._device

    def run_alone(self, side: Literal["a", "b"], seconds: float) -> None:
        """Run one side back to back for ``seconds``, and wait for the end.

        Raises UsageError: when the side fails or does not end in time, and when the process ends.
        """
        self._send(f"{side} {seconds}\n".encode())
        last = self._wait(f"{side.upper()} alone", START_LIMIT_S)
        if not last.has_run_alone:
            raise UsageError(last.fault or (last.timed.reason if last.timed is not None else "the timing process ended"))

    def once_command(self, side: Literal["a", "b"]) -> Sequence[str]:
        """Return a command that runs one side between a profiler's start and stop, and exits."""
        if self._job_file is None:
            self._job_file = tempfile.NamedTemporaryFile(prefix="gpuwatch-diff-")  # noqa: SIM115 - __exit__ closes and removes it
            self._job_file.write(msgspec.msgpack.encode(self._job))
            self._job_file.flush()
        return [*self._command, ONCE, side, self._job_file.name]

    def _send(self, data: bytes) -> None:
        assert self._child.stdin is not None  # noqa: S101 - stdin is a pipe
        with suppress(BrokenPipeError):  # the process ended: its message or last output gives the reason
            self._child.stdin.write(data)
            self._child.stdin.flush()

    def _wait(self, doing: str, limit_s: float) -> ChildMessage:
        """Return the message that ends a step, or an INCOMPARABLE pair after the step's time limit."""
        deadline_ns = clock.now_ns() + int(limit_s * 1e9)
        while True:
            left_s = (deadline_ns - clock.now_ns()) / 1e9
            if left_s <= 0:
                why = f"expected an end within {limit_s:.0f} s, found none: an endless loop, or too much work; use a smaller --shape"
                return ChildMessage(timed=incomparable(f"{doing}: {why}"))
            if not select.select([self._answers], [], [], min(left_s, self._progress_s))[0]:
                if left_s > self._progress_s:
                    self._say(f"{doing}: no end yet; the limit is in {left_s - self._progress_s:.0f} s")
                continue
            part = self._answers.read(1 << 16)
            if not part:
                raise self._explain_end(doing)
            *lines, self._rest = (self._rest + part).split(b"\n")
            for line in lines:
                message = msgspec.json.decode(line, type=ChildMessage)
                if message.usage:
                    raise UsageError(message.usage)
                if message.fault:
                    return msgspec.structs.replace(message, fault=f"{doing}: it {message.fault}")
                if message.timed is not None or message.has_run_alone:
                    return message
                doing, limit_s = message.doing, message.limit_s
                deadline_ns = clock.now_ns() + int(limit_s * 1e9)

    def _explain_end(self, doing: str) -> UsageError:
        with suppress(subprocess.TimeoutExpired):  # the driver can keep a process whose kernel runs; __exit__ kills it
            self._child.wait(_KILL_S)
        ended = (
            f"ended with {code}"
            if (code := self._child.returncode) is not None
            else f"stopped answering and did not end within {_KILL_S:g} s"
        )
        self._printed.seek(0)
        lines = self._printed.read().decode(errors="replace").strip().splitlines()
        output = " ".join(lines[-1].split())[-_OUTPUT_LENGTH:] if lines else "it printed nothing"
        return UsageError(f"expected times, found: the timing process {ended} ({doing}): {output}")
