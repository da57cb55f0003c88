"""The measured process's report on one window: declared facts, times of iterations, the true clock between the edges.

Every part may be missing, and no part may break the benchmark.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, cast

from gpuwatch import clock
from gpuwatch.client.beside import Beside
from gpuwatch.client.connection import Client
from gpuwatch.client.hand_over import prepare
from gpuwatch.client.iteration import Iteration
from gpuwatch.client.marks import TIMED, HostMarks, make_marks, prepare_gpu
from gpuwatch.client.stated_claim import StatedClaim, check_facts
from gpuwatch.client.window_tags import WindowTags
from gpuwatch.errors import DaemonError, UsageError
from gpuwatch.process import torch_state
from gpuwatch.utf8 import found_words
from gpuwatch.wire.messages import DECLARED_LENGTH, FactValue
from gpuwatch.wire.recorded_times import RecordedTimes

if TYPE_CHECKING:
    from annotate.evidence import Timings
    from gpuwatch.client.marks import Marks
    from gpuwatch.cuda.stamp import Stamps
    from gpuwatch.wire.packed_times import PackedTimes

_log = logging.getLogger("gpuwatch")

ROOM_COUNT = 15_000  # stamped iterations if the number of iterations is not known in advance
_DECLARED_LENGTH = DECLARED_LENGTH - 4096  # for all declared facts; the rest is for versions, flags and GPUs


@contextlib.contextmanager
def spared(doing: str) -> Iterator[None]:
    """Log an internal failure, so that the benchmark continues."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the window's boundary
        _log.warning("gpuwatch: %s failed: %s: %s", doing, type(error).__name__, error)


class Testimony:
    """Facts and times that a window collects between its edges and hands over at its end."""

    # ``driver`` has no types; None means cuda-bindings, if installed.
    def __init__(self, driver: Any = None, stated: StatedClaim = StatedClaim()) -> None:  # noqa: B008 - frozen
        self.before = torch_state.Snapshot()
        self._driver = driver
        self._declared: dict[str, FactValue] = stated.facts()
        self._looked: dict[str, FactValue] = {}
        self._recorded: list[Timings | RecordedTimes] = []
        self.replace_times: Callable[[Timings | PackedTimes | None], Timings | PackedTimes | None] | None = None  # by harness
        self.beside = Beside()
        self.tags = WindowTags()
        self._marks: Marks | None = None
        self._is_marking = True  # until marking fails or the window ends
        self._making = threading.Lock()
        self._stamps: Stamps | None = None
        self._seen: dict[str, FactValue] | None = None  # the facts observed at the end

    def begin(self, *, is_stamped: bool = False) -> dict[str, FactValue]:
        """Return the facts known at the start, and with ``is_stamped`` allocate stamps of the true clock.

        Without a CUDA context there are no stamps.
        """
        self.before = torch_state.snapshot()
        if torch_state.cuda_at_hand() is not None:
            with spared("preparing to mark iterations"):
                prepare()
                prepare_gpu(self._driver)
        if is_stamped:
            with spared("preparing to stamp the true clock"):
                if self._stamps is None and torch_state.cuda_at_hand() is not None:
                    from gpuwatch.cuda.stamp import Stamps

                    self._stamps = Stamps.allocate(2, self._driver)
        return self.before.facts | self._declared

    def stamp(self) -> None:
        """Stamp the true clock, if ``begin`` allocated stamps."""
        with spared("stamping the true clock"):
            if self._stamps is not None:
                self._stamps.put()

    def declare(self, facts: dict[str, FactValue]) -> None:
        """Keep facts to declare; unknown names become tags.  Raises UsageError: for invalid, long or too many facts or tags."""
        from annotate.declared import FACTS

        checked: dict[str, FactValue] = {}
        for name, fact in self.tags.take_unknown(facts, FACTS).items():
            try:
                checked[name] = _sendable(name, fact)
            except UsageError:
                raise
            except Exception as error:  # conversions of a caller's type may raise anything
                raise UsageError(f"declare: {name}: expected a value that converts, found {type(error).__name__}") from error
        check_facts(checked)
        declared = self._declared | checked
        length = sum(len(name) + len(str(fact)) for name, fact in declared.items())
        if length > _DECLARED_LENGTH:
            raise UsageError(f"declare: expected at most {_DECLARED_LENGTH} characters in all, found {length}")
        self._declared = declared

    def look_at(self, tensors: tuple[Any, ...]) -> None:
        """Sample the inputs of the measured work.  Raises UsageError: when no tensor is found."""
        from gpuwatch.process.inputs import facts, has_tensor

        try:
            is_tensor_there = has_tensor(tensors)
        except Exception as error:  # a list that holds itself, a type whose attributes fail
            raise UsageError(f"inputs: expected tensors of torch or numpy, found: {type(error).__name__}") from error
        if not is_tensor_there:
            found = ", ".join(type(each).__name__ for each in tensors)
            raise UsageError(f"inputs: expected tensors of torch or numpy, found {found or 'nothing'}")
        with spared("looking at the inputs"):
            self._looked |= facts(*tensors)

    def iterations(self, count: int) -> Iterator[int]:
        """Yield the numbers from 0 to ``count - 1``, and mark each pass of the loop as one iteration."""
        marked = self.iteration(count // 2 + 1)  # one stamp per pass and one at the end
        if self._marks is not None:
            self._marks.reserve(count)
        # Not a with block: a loop left early keeps finished iterations and drops the last one.
        marked.__enter__()
        for number in range(count):
            if number:
                marked.next()
            yield number
        marked.__exit__()

    def other_work(self, kind: str) -> Iteration:
        """Make a context manager around declared work that is not an iteration."""
        return self.iteration(word=self.beside.other.number_of(kind))

    def iteration(self, count: int = ROOM_COUNT, *, word: int = TIMED) -> Iteration:
        """Make a context manager around one of about ``count`` iterations, or around one piece of other work."""
        try:
            torch_state.notice_profiler()
            if self._marks is None and self._is_marking:
                self._make_marks(count)
        except Exception as error:  # noqa: BLE001 - the window's boundary; a context manager would be too slow
            self._give_up(error)
        return Iteration(self._marks if self._is_marking else None, self._give_up, word)

    def _make_marks(self, count: int) -> None:
        with self._making:
            if self._marks is None:
                marks: Marks = HostMarks()
                with spared("preparing to mark iterations"):
                    marks = make_marks(count, self._driver)
                self._marks = marks

    def _give_up(self, error: Exception) -> None:
        if self._is_marking:
            self._is_marking = False
            _log.warning("gpuwatch: marking iterations failed: %s: %s", type(error).__name__, error)

    def record(self, times: Iterable[float] | Timings, at_ns: Iterable[int] | None, begin_ns: int) -> None:
        """Keep times that the caller measured.  An invalid value is logged, and the judge rejects it."""
        now_ns = clock.now_ns()
        with spared("recording times"):
            evidence = sys.modules.get("annotate.evidence")  # a caller with such arrays has imported it
            if evidence is not None and isinstance(times, evidence.Timings):
                self._recorded.append(times)
            else:
                self._newest_recorded().add(cast("Iterable[float]", times), at_ns, begin_ns, now_ns, _complain)
        self.beside.note_hand_over(now_ns, clock.now_ns())

    def _newest_recorded(self) -> RecordedTimes:
        newest = self._recorded[-1] if self._recorded else None
        if not isinstance(newest, RecordedTimes):
            newest = RecordedTimes()
            self._recorded.append(newest)
        return newest

    @property
    def has_more_than_facts(self) -> bool:
        """Return True if times, pauses or other work must be sent before the window closes."""
        return bool(self._recorded or self._marks or self.replace_times) or not self.beside.is_empty

    def hand_over_beside(self, client: Client, run: str) -> None:
        """Send the host's pauses and all other work, marked or recorded."""
        with spared("reading the times of other work"):
            if self._marks is not None:
                for begin_ns, end_ns, word in self._marks.other_work():
                    self.beside.other.add(begin_ns, end_ns, word)
        self.beside.send(client, run)

    def hand_over_times(self, client: Client, run: str) -> None:
        """Send the recorded times; without any, send the marked times or the harness's replacement."""
        declared: dict[str, FactValue] = {"timer": "caller"}
        pieces: list[Timings | PackedTimes] = []
        with spared("reading the times of iterations"):
            pieces = [each for each in map(_as_timings, self._recorded) if len(each.took_s)]
            if not pieces and (self._marks is not None or self.replace_times is not None):
                marked, declared = (self._marks.timings(), self._marks.declared()) if self._marks is not None else (None, {})
                marked = self.replace_times(marked) if self.replace_times is not None else marked
                pieces = [marked] if marked is not None else []
        try:
            for piece in pieces:
                client.times(run, piece)
        except DaemonError as error:
            if error.code not in ("unknown-message", "usage"):
                raise
            # An older daemon, or too many times: the window is judged without the refused times.
            _log.warning("gpuwatch: times of iterations: %s", error)
            return
        if pieces:
            self._declared = declared | self._declared

    def settle(self) -> bool:
        """Observe the last facts; return True if reading the times takes long and may run in a thread."""
        self._seen = torch_state.facts_since(self.before) | self._true_clock() | self._looked
        self._is_marking = False
        with spared("reading the times of iterations"):
            return self._marks is not None and self._marks.settle()
        return False

    @contextlib.contextmanager
    def reading_beside(self, rest: Callable[[], None]) -> Iterator[None]:
        """Let the calling thread read the times after ``settle`` returned True.  Reading calls ``rest``, which may wait."""
        with contextlib.ExitStack() as held:
            with spared("reading the times of iterations"):
                if self._marks is not None:
                    held.enter_context(self._marks.reading_beside(rest))
            yield

    def all(self) -> dict[str, FactValue]:
        """Return all facts at the end; a truthy observed fact replaces a declared one."""
        if self._seen is None:
            self.settle()
        at_beginning = {name: fact for name, fact in self.before.facts.items() if name in self._declared}
        seen = at_beginning | (self._seen or {})
        return self._declared | {name: fact for name, fact in seen.items() if fact or name not in self._declared}

    def _true_clock(self) -> dict[str, FactValue]:
        """Return the mean clock and the time between the stamps at the window's edges; empty if no clock is known."""
        with spared("reading the true clock"):
            if self._stamps is not None and self._stamps.used == 2:
                stamped = self._stamps.read()
                mhz = stamped.mean_mhz(0, 1)
                if mhz is not None:
                    return {"true_clock_mhz": mhz, "stamped_s": (stamped.began_ns(1) - stamped.began_ns(0)) / 1e9}
        return {}

    def close(self) -> None:
        """Release the GPU memory of marks and stamps, and stop marking."""
        self._is_marking = False
        held = (self._marks, self._stamps)
        self._stamps = None
        for each in held:
            with spared("releasing the memory of stamps"):
                if each is not None:
                    each.close()


def _as_timings(recorded: Timings | RecordedTimes) -> Timings:
    if isinstance(recorded, RecordedTimes):
        return recorded.timings()
    from gpuwatch.wire.timings import mend

    return mend(recorded, _complain)


def _complain(words: str) -> None:
    _log.warning("gpuwatch: record: %s", words)


def _sendable(name: str, fact: object) -> FactValue:
    if fact is None or isinstance(fact, bool):
        return fact
    if isinstance(fact, str):
        try:
            fact.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"declare: {name}: expected text that can be written as UTF-8, found: {error.reason}") from error
        return str(fact)
    if isinstance(fact, Integral):
        if not -(2**63) <= int(fact) < 2**63:
            raise UsageError(
                f"declare: {name}: expected a whole number from -2^63 to 2^63 - 1, found one of {int(fact).bit_length()} bits"
            )
        return int(fact)
    if isinstance(fact, Real):
        with contextlib.suppress(OverflowError):
            return float(fact)
    raise UsageError(f"declare: {name}: expected text, a number, True, False or None, found {found_words(fact)}")
