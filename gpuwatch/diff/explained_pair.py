"""A timed pair of kernels with its counters, rooflines and reasons."""

from dataclasses import asdict, dataclass
from typing import Any

from gpuwatch.diff.kernel_counters import HALVES, Counters
from gpuwatch.diff.kernel_roofline import KernelRoofline, Peaks, against_roofline
from gpuwatch.diff.reasons import RatioReason, explain, why_none
from gpuwatch.diff.static_comparison import StaticComparison
from gpuwatch.diff.timed_pair import TimedPair


@dataclass(frozen=True, slots=True)
class ExplainedPair:
    """The answer on one pair of kernels, and everything that stands behind it."""

    timed: TimedPair
    counters: Counters
    peaks: Peaks | None  # None where nothing was timed
    a: KernelRoofline | None
    b: KernelRoofline | None
    reasons: tuple[RatioReason, ...]
    why_none: str

    @property
    def is_simulated(self) -> bool:
        return self.peaks is not None and self.peaks.device.simulated

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; the schema is ``docs/schemas/diff.json``."""
        return {
            **asdict(self.timed),
            "simulated": self.is_simulated,
            "gpu": self.peaks.device.name if self.peaks else None,
            "counters": self.counters.to_dict(),
            "peak_memory_bytes": {
                "measured": self.peaks.measured_bytes if self.peaks else None,
                "specified": self.peaks.specified_bytes if self.peaks else None,
            },
            "roofline": {"a": self.a and self.a.to_dict(), "b": self.b and self.b.to_dict()},
            "why": [asdict(each) for each in self.reasons],
        }


def explain_pair(timed: TimedPair, static: StaticComparison | None, counters: Counters, peaks: Peaks | None) -> ExplainedPair:
    """Explain one timed pair; without code only counters explain it."""
    if static is not None and not any("f16" in line.text for side in (static.a, static.b) for line in side.code.ptx):
        counters = counters.without(HALVES)  # HFMA2 also moves constants, which are no operations
    a = against_roofline(timed.a, "a", counters, peaks) if timed.a and peaks else None
    b = against_roofline(timed.b, "b", counters, peaks) if timed.b and peaks else None
    return ExplainedPair(timed, counters, peaks, a, b, explain(timed, static, counters), why_none(timed))
