"""The facts of one benchmark: its attempts, the one that counts, and how they were timed."""

from __future__ import annotations

from dataclasses import dataclass

from annotate.evidence import Device, Timings
from annotate.verdict import Status, Verdict
from gpuwatch.measuring.attempt import Attempt, Warmup
from gpuwatch.measuring.reference import Match


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # arrays have no one answer to ==
class BenchResult:
    """The attempts of one benchmark and the facts around them.

    The attempt that counts is the last valid one, else the last, and never the fastest.
    """

    label: str
    timer: str
    cache: str | None  # cold or warm; None: the host's timer leaves the cache alone
    attempts: tuple[Attempt, ...]
    timer_overhead_s: float  # of an entry, and not subtracted
    issue_s: float | None = None  # the host's time to launch a call
    first_call_s: float | None = None
    call_flops_count: float | None = None
    call_bytes: float | None = None
    dtype: str | None = None
    device: Device | None = None
    match: Match | None = None  # against the reference
    output_unchanged: bool | None = None

    @property
    def attempt(self) -> Attempt:
        """The attempt that counts."""
        valid = [one for one in self.attempts if one.verdict.status is Status.VALID]
        return (valid or self.attempts)[-1]

    @property
    def timings(self) -> Timings:
        return self.attempt.timings

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """One verdict for each GPU, worst first."""
        return self.attempt.verdicts

    @property
    def verdict(self) -> Verdict:
        return self.attempt.verdict

    @property
    def run(self) -> str | None:
        """The window's number, for ``gpuwatch show``."""
        return self.attempt.run

    @property
    def warmup(self) -> Warmup:
        return self.attempt.warmup
