"""A window that a harness opens around its timed part.  It raises nothing, and keeps quiet until the harness is done."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from annotate.user_policy import Policy
from gpuwatch import clock
from gpuwatch.client.iteration import Iteration
from gpuwatch.client.window import Window
from gpuwatch.harness.harness_times import HarnessTimes, spread_begins
from gpuwatch.harness.quiet_log import quietly
from gpuwatch.wire.messages import FactValue

_ROOM_COUNT = 4000  # rounds with a stamp of the clock: four times what do_bench and torch's Timer run by default


class HarnessWindow(Window):
    """One timed part of a harness; ``face`` names the harness, ``attached`` is the plain data that its result carries."""

    def __init__(self, face: str, label: str, policy: Policy) -> None:
        super().__init__(label, policy, gpus=None, sync=True, on_reject="report", settings=None)
        self.face = face
        self.unknown: str | None = None  # why this harness's times cannot be read
        self.attached: dict[str, object] = {"run": None, "status": None}
        self._iteration: Iteration | None = None

    @property
    def is_open(self) -> bool:
        return self.begin_ns is not None and self.end_ns is None

    def begin(self, *, is_marked: bool = True) -> None:
        """Open the window; on a failure its verdict is unproven.  ``is_marked`` makes room for the marks of rounds before it."""
        if self.begin_ns is None:
            if is_marked:
                with quietly("preparing to mark rounds"):
                    self._iteration = self._testimony.iteration(_ROOM_COUNT)
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
            note = functools.partial(self.note_other_work, between) if between else None
            self._testimony.replace_times = HarnessTimes(took_s, begins, calls_count, note).replace

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
        """Make the verdict unproven: this version of the harness does not do what gpuwatch expects of it."""
        self.unknown = why
