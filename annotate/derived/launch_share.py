"""The parts of a timed call: the GPU's work and the launch.

While the host runs ahead, launches overlap with work, and only the timer's own overhead is not work.  If the GPU waits for
the host, a call takes as long as its launch.
"""

import math
from dataclasses import asdict, dataclass

from annotate.declared import amount, text
from annotate.derived.timed import Loop, loop
from annotate.evidence import Evidence
from annotate.evidence.asked import kept
from annotate.times.durations import readable

# Timers that read the GPU's time: their numbers claim the time of a kernel.
GPU_TIMERS = ("events", "graph", "stamps")
_HIDDEN_S = 5e-9  # a shorter gap is not printed


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchShare:
    """The launches of one timed number; a call is the timed unit and may hold several kernels.

    ``launch_s`` is the upper bound of the part of ``call_s`` that is not GPU work.  ``issue_s`` is the host's time to launch
    a call.  ``gap_s`` is the median time from the end of a reading to the start of the next.  ``starved_ratio`` is the share
    of readings for whose launch the GPU waited.
    """

    call_s: float
    launch_s: float
    launches_count: int
    starved_ratio: float
    issue_s: float | None = None
    gap_s: float | None = None

    @property
    def gpu_ratio(self) -> float:
        """Return the lower bound of the GPU's share of the number."""
        return 1.0 - self.launch_s / self.call_s if self.call_s > 0.0 else 0.0

    @property
    def excess_ratio(self) -> float | None:
        """Return the excess of the number over the GPU's part, or None if no part is certainly the GPU's."""
        rest_s = self.call_s - self.launch_s
        return self.launch_s / rest_s if rest_s > 0.0 and math.isfinite(self.launch_s / rest_s) else None

    def to_dict(self) -> dict[str, float | int | None]:
        """Return plain data for JSON."""
        return {"gpu_ratio": self.gpu_ratio, **asdict(self)}

    def __str__(self) -> str:
        least = "" if self.starved_ratio == 0.0 else "at least "
        part = (
            f"{_amount(self.launch_s)} of {_amount(self.call_s)} is launch"
            if self.launch_s
            else "the host was ahead of the GPU"
        )
        words = [f"GPU's share {least}{_percent(self.gpu_ratio)}: {part}"]
        count = "1 call" if self.launches_count == 1 else f"{self.launches_count} calls"
        if self.issue_s is not None:
            words.append(f"{count}, the host needs {_amount(self.issue_s)} to launch one")
        if self.gap_s is not None and self.gap_s >= _HIDDEN_S:
            words.append(f"{_amount(self.gap_s)} between readings")
        if self.starved_ratio > 0.0:
            words.append(f"the GPU waited for {_percent(self.starved_ratio)} of them")
        return "; ".join(words)


def launch_share(
    call_s: float,
    overhead_s: float,
    launches_count: int,
    *,
    starved_ratio: float = 0.0,
    issue_s: float | None = None,
    gap_s: float | None = None,
    waited_s: float | None = None,
) -> LaunchShare:
    """Return the launch share of a call: the larger of the timer's overhead and the starved launches' mean over all readings.

    A starved launch takes the shortest known of call time, host time and GPU wait.  ``overhead_s`` is the timer's reading
    around no work, divided by the calls of a reading.
    """
    starved_s = min(each for each in (call_s, issue_s, waited_s) if each is not None)
    return LaunchShare(
        call_s=call_s,
        launch_s=min(call_s, max(overhead_s, starved_ratio * starved_s)),
        launches_count=launches_count,
        starved_ratio=starved_ratio,
        issue_s=issue_s,
        gap_s=gap_s,
    )


@kept
def declared_share(evidence: Evidence) -> LaunchShare | None:
    """Return the launch share of a window if the harness declared its launch times and read GPU times; else None."""
    timed, issue_s = loop(evidence), amount(evidence.declared, "issue_s")
    starved_ratio = amount(evidence.declared, "starved_ratio")
    if timed is None or issue_s is None or starved_ratio is None or not claims_kernel(evidence):
        return None
    return launch_share(
        timed.call_s,
        (amount(evidence.declared, "timer_overhead_s") or 0.0) / timed.calls_count,
        timed.entries_count * timed.calls_count,
        starved_ratio=min(1.0, starved_ratio),
        issue_s=issue_s,
        gap_s=timed.gap_s(),
        waited_s=waited_s(evidence, timed),
    )


def claims_kernel(evidence: Evidence) -> bool:
    """Return whether the times were read on the GPU, so that they claim the time of a kernel."""
    return text(evidence.declared, "timer") in GPU_TIMERS


def waited_s(evidence: Evidence, timed: Loop) -> float | None:
    """Return the GPU's idle time in a call, or None if utilisation or the time of other work is not known."""
    busy_s, other = timed.call_busy_s, evidence.other_work
    if busy_s is None or (other is None and has_other_work(evidence)):
        return None
    other_s = 0.0 if other is None else float(other.took_s.sum()) / (timed.entries_count * timed.calls_count)
    return max(0.0, timed.call_s - max(0.0, busy_s - other_s))


def has_other_work(evidence: Evidence) -> bool:
    """Return whether the GPU also worked between the calls, so that utilisation includes other work."""
    return evidence.other_work is not None or bool(amount(evidence.declared, "flush_bytes"))


def _percent(ratio: float) -> str:
    """Return a share as percent, with one decimal from 99 to 99.95 %, so that 99.6 % does not print as 100 %."""
    return f"{100 * ratio:.0f} %" if ratio < 0.99 or ratio > 0.9995 else f"{100 * ratio:.1f} %"


def _amount(seconds: float) -> str:
    return readable(round(seconds, 7))  # no timer of launches resolves less than 0.1 µs
