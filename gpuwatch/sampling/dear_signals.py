"""The choice of slow rows that ask for the signals whose calls take milliseconds: energy and GPM."""

from annotate.evidence import DEAR, Lane
from gpuwatch.sampling.plan import SLOW_ACTIVE_NS, LanePeriods

AGE_COUNT = 10  # rows with dear signals in a window's age: their means and differences stay as sharp as in a short window
MOST_NS = 3_000_000_000  # a page that hangs for twice as long has two readings of energy to contradict it


class DearSignals:
    """Asks for dear signals in every slow row near a window's edges, and more rarely as the window grows older.

    The slow thread asks for names; any thread may report an edge.
    """

    def __init__(self, periods: LanePeriods) -> None:
        self._periods = periods
        self._edge_ns = 0
        self._read_ns: int | None = None  # None: the next row is to hold them

    def note_edge(self, now_ns: int) -> None:
        """Have the next row hold them, and the rows of the next seconds."""
        self._edge_ns, self._read_ns = now_ns, None

    def names(self, now_ns: int) -> tuple[str, ...]:
        """Return the signals of the slow row that is read now."""
        names = self._periods.plan.names.get(Lane.SLOW, ())
        if self._periods.is_active and self._read_ns is not None:
            period_ns = min(MOST_NS, (now_ns - self._edge_ns) // AGE_COUNT)
            if now_ns - self._read_ns < period_ns - SLOW_ACTIVE_NS // 2:
                return tuple(name for name in names if name not in DEAR)
        self._read_ns = now_ns
        return names
