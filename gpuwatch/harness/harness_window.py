"""A window that a harness opens around its timed part.  It raises nothing, and prints nothing until the harness is done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from annotate.user_policy import Policy
from gpuwatch import clock
from gpuwatch.client.conversation import Conversation
from gpuwatch.client.iteration import Iteration
from gpuwatch.client.testimony import Testimony
from gpuwatch.client.window import Window
from gpuwatch.harness.harness_times import HarnessTimes, spread_begins
from gpuwatch.harness.quiet_log import quietly
from gpuwatch.wire.messages import FactValue

_ROOM_COUNT = 4000  # rounds with a stamp of the clock: four times what do_bench and torch's Timer run by default


class HarnessConversation(Conversation):
    """A window's conversation that ends with the harness's work: later computation is no pause of the GPU."""

    worked_ns: tuple[int, int] | None = None

    def close(self, begin_ns: int, end_ns: int, testimony: Testimony, declared: dict[str, FactValue]) -> None:
        if self.worked_ns is not None:
            begin_ns, end_ns = max(begin_ns, self.worked_ns[0]), min(end_ns, self.worked_ns[1])
        super().close(begin_ns, max(begin_ns, end_ns), testimony, declared)


class HarnessWindow(Window):
    """One timed part of a harness; ``face`` names the harness, ``attached`` is the plain data that its result carries."""

    def __init__(self, face: str, label: str, policy: Policy, *, sync: bool = True) -> None:
        super().__init__(label, policy, gpus=None, sync=sync, on_reject="report", settings=None)
        self._conversation = self._timed = HarnessConversation(None)
        self.face = face
        self.unknown: str | None = None  # why this harness's times cannot be read
        self.attached: dict[str, object] = {"run": None, "status": None}
        self._iteration: Iteration | None = None

    @property
    def is_open(self) -> bool:
        return self.begin_ns is not None and self.end_ns is None

    def make_marks(self) -> None:
        """Make room for the marks of rounds, which waits for the GPU: before its warm-up, where the harness has one."""
        with quietly("preparing to mark rounds"):
            self._iteration = self._testimony.iteration(_ROOM_COUNT)

    def begin(self) -> None:
        """Open the window; on a failure its verdict is unproven."""
        if self.begin_ns is None:
            with quietly("opening a window"):
                self.__enter__()
                self.attached["run"] = self.run_id

    def begin_round(self) -> None:
        """Mark the beginning of a timed entry: an event and a stamp of the clock on a GPU, outside what the harness times."""
        if self._iteration is not None:
            self._iteration.__enter__()

    def end_round(self) -> None:
        """Mark the end of the entry that began last, if one did."""
        if self._iteration is not None:
            self._iteration.__exit__()

    def narrow(self, begin_ns: int, end_ns: int) -> None:
        """State when the timed work began and ended; the daemon allows 100 ms between these and the window's own edges."""
        self._timed.worked_ns = (begin_ns, end_ns)

    def note_other_work(self, kind: str, begin_ns: int, end_ns: int) -> None:
        """Keep a piece of work that the harness ran and did not count."""
        other = self._testimony.beside.other
        other.add(begin_ns, end_ns, other.number_of(kind))

    def take_times(
        self, took_s: Sequence[float], begins_ns: Iterable[int] | None = None, *, calls_count: int = 1, between: str = ""
    ) -> None:
        """Keep the harness's own times in seconds.  Without begins the entries are spread evenly from the window's begin to now.

        ``between`` is a word for the work from each marked entry to the next, such as ``"flush"``.
        """
        with quietly("reading the harness's times"):
            begins = spread_begins(self.begin_ns or 0, clock.now_ns(), took_s) if begins_ns is None else begins_ns
            times = HarnessTimes(took_s, begins, calls_count)
            if between:
                times.note_gaps(self.note_other_work, between, self.begin_ns or 0)
            self._testimony.replace_times = times.replace

    def tell(self, **facts: FactValue) -> None:
        """Declare facts of the harness; one that cannot be sent is left out."""
        with quietly("declaring facts"):
            self.declare(**facts)

    def finish(self, error: BaseException | None = None) -> None:
        """Close the window; the times are handed over now, and the verdict is asked for later."""
        if self.is_open:
            with quietly("closing a window"):
                self.__exit__(type(error) if error is not None else None, error, None)
                if mhz := self._testimony.all().get("true_clock_mhz"):
                    self.attached["true_clock_mhz"] = mhz

    def disown(self, why: str) -> None:
        """Make the verdict unproven: gpuwatch does not know this version of the harness."""
        self.unknown = why
