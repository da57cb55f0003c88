"""The window around a harness's timed part, which raises no errors and prints nothing before the summary."""

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

_ROOM_COUNT = 4000  # most rounds with a stamp of the clock; do_bench and torch's Timer run fewer by default


class HarnessConversation(Conversation):
    """A conversation that narrows its window to the harness's work, so that idleness around it does not count as a pause."""

    worked_ns: tuple[int, int] | None = None

    def close(self, begin_ns: int, end_ns: int, testimony: Testimony, declared: dict[str, FactValue]) -> None:
        if self.worked_ns is not None:
            begin_ns, end_ns = max(begin_ns, self.worked_ns[0]), min(end_ns, self.worked_ns[1])
        super().close(begin_ns, max(begin_ns, end_ns), testimony, declared)


class HarnessWindow(Window):
    """One timed part of a harness; ``face`` names the harness, ``attached`` is the plain data in the harness's result."""

    def __init__(self, face: str, label: str, policy: Policy, *, sync: bool = True) -> None:
        super().__init__(label, policy, gpus=None, sync=sync, on_reject="report", settings=None)
        self._conversation = self._timed = HarnessConversation(None)
        self.face = face
        self.unknown: str | None = None  # the reason if this harness's times cannot be read
        self.attached: dict[str, object] = {"run": None, "status": None}
        self._iteration: Iteration | None = None

    @property
    def is_open(self) -> bool:
        return self.begin_ns is not None and self.end_ns is None

    def make_marks(self) -> None:
        """Allocate the marks of rounds.  The allocation waits for the GPU, so call this before the timed part."""
        with quietly("preparing to mark rounds"):
            self._iteration = self._testimony.iteration(_ROOM_COUNT)

    def begin(self) -> None:
        """Open the window; if this fails, the verdict is unproven."""
        if self.begin_ns is None:
            with quietly("opening a window"):
                self.__enter__()
                self.attached["run"] = self.run_id

    def begin_round(self) -> None:
        """Mark the start of a timed entry with an event and a stamp of the clock on the GPU, outside the harness's timing."""
        if self._iteration is not None:
            self._iteration.__enter__()

    def end_round(self) -> None:
        """Mark the end of the last started entry, if there is one."""
        if self._iteration is not None:
            self._iteration.__exit__()

    def narrow(self, begin_ns: int, end_ns: int) -> None:
        """Set start and end of the timed work; the daemon accepts times up to 100 ms from the window's edges."""
        self._timed.worked_ns = (begin_ns, end_ns)

    def note_other_work(self, kind: str, begin_ns: int, end_ns: int) -> None:
        """Record an interval of work that the harness ran and did not count."""
        other = self._testimony.beside.other
        other.add(begin_ns, end_ns, other.number_of(kind))

    def take_times(
        self, took_s: Sequence[float], begins_ns: Iterable[int] | None = None, *, calls_count: int = 1, between: str = ""
    ) -> None:
        """Store the harness's times in seconds.  Without ``begins_ns``, spread the entries evenly over the window until now.

        ``between`` names the kind of work from each entry to the next, such as ``"flush"``.
        """
        with quietly("reading the harness's times"):
            begins = spread_begins(self.begin_ns or 0, clock.now_ns(), took_s) if begins_ns is None else begins_ns
            times = HarnessTimes(took_s, begins, calls_count)
            if between:
                times.note_gaps(self.note_other_work, between, self.begin_ns or 0)
            self._testimony.replace_times = times.replace

    def declare_quietly(self, **facts: FactValue) -> None:
        """Declare facts of the harness; an invalid fact raises no error."""
        with quietly("declaring facts"):
            self.declare(**facts)

    def finish(self, error: BaseException | None = None) -> None:
        """Close the window and send the times; the verdict is requested later."""
        if self.is_open:
            with quietly("closing a window"):
                self.__exit__(type(error) if error is not None else None, error, None)
                if mhz := self._testimony.all().get("true_clock_mhz"):
                    self.attached["true_clock_mhz"] = mhz

    def disown(self, why: str) -> None:
        """Make the verdict unproven, because gpuwatch does not support this version of the harness."""
        self.unknown = why
