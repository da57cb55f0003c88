"""The result of bench(): every figure of one benchmark, with its verdict."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from annotate.times.clock_sensitivity import NoFit
from annotate.verdict import Status
from gpuwatch.errors import RejectedError
from gpuwatch.measuring import garbage_collection, render
from gpuwatch.measuring.attempt import Attempt
from gpuwatch.measuring.figures import RateFigures

SCHEMA = 1
_FIGURES = (
    "label", "timer", "cache", "timer_overhead_s", "issue_s", "host_bound", "first_call_s", "call_flops_count", "call_bytes",
    "dtype", "output_unchanged", "mean_s", "median_s", "trimmed_mean_s", "min_s", "p95_s", "p99_s", "sd_s", "cv_ratio", "iqr_s",
    "count", "calls_count", "effective_count", "clock_mhz", "flops_per_s", "flops_peak_ratio", "bytes_per_s", "bytes_peak_ratio",
)  # fmt: skip
_SENSITIVITY = (
    "beta", "beta_low", "beta_high", "r", "explained_ratio", "clock_low_mhz", "clock_high_mhz", "cold_count", "count",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measurement(RateFigures):
    """A benchmark's figures and verdict, as ``bench`` returns them: for people, programs and files.

    The figures are those of the attempt that counts: the last valid one, else the last, never the fastest.  ``print`` shows
    them with the verdict.  Only ``bench`` makes measurements.

    Raises nothing when a figure is read.

    Example:
        >>> measured = gpuwatch.bench(sum, args=(list(range(1000)),), min_s=0.05, max_s=0.1, warmup_max_s=0.05)
        >>> measured.min_s <= measured.median_s <= measured.p99_s
        True
        >>> measured.device is None  # this process used no GPU
        True
    """

    def raise_for_verdict(self) -> None:
        """Raise RejectedError if the verdict is rejected; do nothing otherwise.

        Raises RejectedError: when the verdict is rejected; ``error.verdict`` holds the verdict.

        Example:
            >>> try:
            ...     measured.raise_for_verdict()
            ... except gpuwatch.RejectedError as error:
            ...     print(error.verdict.status.value)  # as on a busy machine
            ... else:
            ...     print("not rejected")  # varies
            not rejected
        """
        if self.verdict.status is Status.REJECTED:
            raise RejectedError(self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Return all figures, verdicts and attempts as plain data for JSON; the schema is ``docs/schemas/measurement.json``.

        Raises nothing.

        Example:
            >>> data = measured.to_dict()
            >>> data["timer"], data["dtype"], data["device"]
            ('host', None, None)
        """
        device, match, fit, share = self.device, self.match, self.clock_sensitivity, self.launch_share
        return {
            "schema": SCHEMA,
            **{name: finite(getattr(self, name)) for name in _FIGURES},
            "collector": garbage_collection.HELD_OFF,
            "ci_s": None if self.ci_s is None else list(self.ci_s),
            "clock_sensitivity": (
                {"refused": fit.reason} if isinstance(fit, NoFit) else {name: getattr(fit, name) for name in _SENSITIVITY}
            ),
            "launch_share": None if share is None else share.to_dict(),
            "device": None if device is None else {"uuid": device.uuid, "name": device.name},
            "reference": None
            if match is None
            else {"error_ratio": finite(match.error_ratio), "limit_ratio": match.limit_ratio},
            "run": self.run,
            "status": self.verdict.status.value,
            "why": self.verdict.why,
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
            "attempt": self.attempts.index(self.attempt),
            "attempts": [_attempt(one) for one in self.attempts],
        }

    def __str__(self) -> str:
        return render.text(self)

    def _repr_html_(self) -> str:
        return render.html(self)


def _attempt(one: Attempt) -> dict[str, Any]:
    return {
        "run": one.run,
        "status": one.verdict.status.value,
        "median_s": float(np.median(one.timings.took_s)),
        "ci_s": None if one.interval is None else [one.interval.low, one.interval.high],
        "took_s": one.took_s,
        "stopped": one.stopped.value,
        "busy_ratio": one.busy_ratio,
        "power_limited": one.power_limited,
        "warmup": asdict(one.warmup),
    }


def finite(value: Any) -> Any:
    """Return the value, or None for a number that is not finite, because JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
