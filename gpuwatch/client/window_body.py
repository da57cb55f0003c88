"""The methods of a window for its open block: times, other work, inputs and declared facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from gpuwatch.client.iteration import Iteration
from gpuwatch.client.testimony import Testimony
from gpuwatch.client.window_arguments import check_kind
from gpuwatch.errors import UsageError
from gpuwatch.utf8 import found_words
from gpuwatch.wire.messages import FactValue

if TYPE_CHECKING:
    from annotate.evidence import OtherWork, Timings


class WindowBody:
    """The methods of a window for its open block."""

    begin_ns: int | None
    end_ns: int | None
    _testimony: Testimony

    def iteration(self) -> Iteration:
        """Return a context manager around one iteration, whose time and true clock become evidence.

        On a GPU each iteration costs about 12 µs of the host and 4 µs of the GPU outside the measured time
        (``docs/TRUE_CLOCK.md``).  Without a GPU the host's clock is read twice.

        Raises UsageError: when the window's block is not open.

        Example:
            >>> with gpuwatch.window("sum") as w:
            ...     with w.iteration():
            ...         total = sum(range(100_000))
        """
        self._check_inside("iteration")
        return self._testimony.iteration()

    def iterations(self, count: int) -> Iterator[int]:
        """Return an iterator over 0 to ``count - 1``; each pass of the loop is timed as one iteration.

        One stamp is the end of an iteration and the start of the next, so a loop costs less than ``iteration``.

        Args:
            count: Number of passes, a count of at least 1.

        Raises UsageError: when the window's block is not open, and for an invalid count.

        Example:
            >>> with gpuwatch.window("sum") as w:
            ...     for number in w.iterations(3):
            ...         total = sum(range(100_000 + number))
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UsageError(f"iterations: expected a count of at least 1, found {found_words(count)}")
        self._check_inside("iterations")
        return self._testimony.iterations(count)

    def other_work(self, kind: str) -> Iteration:
        """Return a context manager around work of the window that is not an iteration: a flush, a warm-up, a check.

        The time becomes evidence like an iteration's, by CUDA events if this process uses a GPU.  The judge then attributes
        the GPU's activity to this work.

        Args:
            kind: Word for the work, such as ``"flush"``.

        Raises UsageError: when the window's block is not open, and when the word is not text, empty or too long.

        Example:
            >>> with gpuwatch.window("sum") as w:
            ...     with w.other_work("check"):
            ...         assert sum(range(3)) == 3
        """
        self._check_inside("other_work")
        return self._testimony.other_work(check_kind(kind))

    def record(self, times: Iterable[float] | Timings, *, at_ns: Iterable[int] | None = None) -> None:
        """Record times that you measured yourself, in the order in which the iterations ran.

        An invalid duration (text, a boolean, zero, infinity) never stops the benchmark: gpuwatch logs the value, and the
        verdict rejects it as an impossible time.

        Args:
            times: Durations in seconds, one per iteration; any iterable of floats, such as a numpy array of shape (n,).
                An ``annotate.evidence.Timings`` has its own start times.
            at_ns: Start times in nanoseconds on ``time.monotonic_ns``, one per duration.  Without start times the iterations
                count as back to back until now.

        Raises UsageError: when the window's block is not open.

        Example:
            >>> with gpuwatch.window("taken elsewhere") as w:
            ...     time.sleep(0.01)
            ...     w.record([0.002, 0.0021, 0.002])
        """
        self._check_inside("record")
        self._testimony.record(times, at_ns, self.begin_ns or 0)

    def record_other_work(self, other: OtherWork) -> None:
        """Record work that you timed yourself and that is not an iteration: flushes, holds, checks.

        Args:
            other: ``annotate.evidence.OtherWork``: arrays of shape (n,) of start times in nanoseconds and durations in
                seconds, and a word for each piece.

        Raises UsageError: when the window's block is not open.

        Example:
            >>> import numpy as np
            >>> from annotate.evidence import OtherWork
            >>> with gpuwatch.window("flushed") as w:
            ...     at_ns = np.array([time.monotonic_ns()])
            ...     w.record_other_work(OtherWork(at_ns, np.array([0.001]), ("flush",)))
        """
        self._check_inside("record_other_work")
        self._testimony.beside.recorded.append(other)

    def inputs(self, *tensors: Any) -> None:
        """Sample the inputs of the measured work: zeros and repeated values run cooler and faster than data.

        Sampling reads some values of each tensor.  Call ``inputs`` before the timed part.

        Args:
            tensors: Tensors of torch or arrays of numpy, of any shape.

        Raises UsageError: when the window's block is not open, and when no tensor is found.

        Example:
            >>> import numpy as np
            >>> with gpuwatch.window("matmul") as w:
            ...     w.inputs(np.random.rand(64, 64))
        """
        self._check_inside("inputs")
        self._testimony.look_at(tensors)

    def declare(self, **facts: FactValue) -> None:
        """Declare facts that only the measured process can provide.  A declared fact can only worsen the verdict.

        Args:
            facts: Values by the names of ``annotate.declared.FACTS``, in the unit that ends the name.  Other names become
                tags, with a warning.

        Raises UsageError: when facts or tags are invalid, too long or too many.

        Example:
            >>> with gpuwatch.window("sum") as w:
            ...     w.declare(warmup_count=10, dtype="float32")
        """
        self._testimony.declare(facts)

    def tell(self, **facts: FactValue) -> None:
        """Declare facts under the former name of ``declare``, which will be removed in 0.3.

        Args:
            facts: Values as in ``declare``.

        Raises UsageError: as ``declare`` does.

        Example:
            >>> with gpuwatch.window("sum") as w:
            ...     w.tell(warmup_count=10)
        """
        self.declare(**facts)

    def _check_inside(self, doing: str) -> None:
        if self.begin_ns is None or self.end_ns is not None:
            raise UsageError(f"{doing}: expected a call inside the window's `with` block, found one outside")
