"""The times that a harness measured, with the start times and clocks of gpuwatch's marks if there are enough marks."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from gpuwatch.wire.messages import TIMES_COUNT
from gpuwatch.wire.packed_times import PackedTimes

if TYPE_CHECKING:
    from annotate.evidence import Timings


Note: TypeAlias = Callable[[str, int, int], object]


def spread_begins(begin_ns: int, end_ns: int, took_s: Sequence[float]) -> array[int]:
    """Return start times for entries that ran in order between two times, with equal pauses before the entries."""
    gap_ns = max(0.0, end_ns - begin_ns - 1e9 * sum(took_s)) / max(1, len(took_s))
    begins_ns, at_ns = array("q"), begin_ns + gap_ns
    for each_s in took_s:
        begins_ns.append(int(at_ns))
        at_ns += 1e9 * each_s + gap_ns
    return begins_ns


class HarnessTimes:
    """The durations of a harness's entries in seconds, the entries' start times, and the number of calls per entry."""

    def __init__(self, took_s: Iterable[float], begins_ns: Iterable[int], calls_count: int = 1) -> None:
        """Store the times of entries, divided by the number of calls: the judge gets the time of one call."""
        self._note: Note | None = None
        self._between = ""
        self._since_ns = 0
        self._calls_count = max(1, calls_count)
        self._took_s = array("d", [each_s / self._calls_count for each_s in took_s][:TIMES_COUNT])
        self._begins_ns = array("q", begins_ns)[:TIMES_COUNT]

    def note_gaps(self, note: Note, between: str, since_ns: int) -> None:
        """Let ``replace`` report the time between entries as this work, and from ``since_ns`` to the first as warm-up."""
        self._note, self._between, self._since_ns = note, between, since_ns

    def replace(self, marked: Timings | PackedTimes | None) -> Timings | PackedTimes | None:
        """Return these times with start times and clocks of the last marks, one per entry.

        With too few marks the start times are the harness's.  Without complete times of the harness, return ``marked``.
        """
        count = len(self._took_s)
        if not count or count != len(self._begins_ns):
            return marked
        packed = marked if marked is None or isinstance(marked, PackedTimes) else PackedTimes.of(marked)
        begins_ns, clocks_mhz = self._begins_ns, None
        if packed is not None and packed.count >= count:
            begins_ns = array("q", packed.at_ns)[-count:]
            clocks_mhz = packed.sm_clock_mhz[-4 * count :] if packed.sm_clock_mhz else None
        if self._note is not None:
            self._note("warm-up", self._since_ns, begins_ns[0])
            for begin_ns, took_s, next_ns in zip(begins_ns, self._took_s, begins_ns[1:], strict=False):
                self._note(self._between, begin_ns + int(1e9 * took_s * self._calls_count), next_ns)
        return PackedTimes(begins_ns.tobytes(), self._took_s.tobytes(), clocks_mhz, self._calls_count)
