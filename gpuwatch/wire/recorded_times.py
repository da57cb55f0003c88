"""Times from a caller, kept without numpy and without an object per time, so that the benchmark is not delayed."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gpuwatch.utf8 import found_words

if TYPE_CHECKING:
    from annotate.evidence import Timings

LONGEST_S = 1e9  # thirty years: a longer duration cannot be in seconds
IMPOSSIBLE = "the judge rejects such times"
_BACK_TO_BACK = "the times count as back to back"
_UNKNOWN_NS = -1  # for unknown start times


class RecordedTimes:
    """Durations in seconds and their start times, from any number of calls."""

    def __init__(self) -> None:
        self._took_s = array("d")
        self._at_ns = array("q")
        # Per call: count of times, time of the call, and the window's start (-1 with known start times).
        self._pieces = array("q")

    def __len__(self) -> int:
        return len(self._took_s)

    def add(
        self,
        times: Iterable[float],
        at_ns: Iterable[int] | None,
        begin_ns: int,
        now_ns: int,
        complain: Callable[[str], object] = len,
    ) -> None:
        """Keep durations in seconds; without start times, the durations count as back to back until now.

        Never raises, because the benchmark continues.  An invalid duration becomes zero, which the judge rejects.  Invalid start
        times are dropped.  ``complain`` receives a message about invalid times and missing durations.
        """
        before_count = len(self._took_s)
        _add_durations(self._took_s, times, complain)
        count = len(self._took_s) - before_count
        is_known = at_ns is not None and _add_begins(self._at_ns, at_ns, count, complain)
        if not is_known:
            for _ in range(count):
                self._at_ns.append(_UNKNOWN_NS)
        self._pieces.append(count)
        self._pieces.append(now_ns)
        self._pieces.append(_UNKNOWN_NS if is_known else begin_ns)

    def timings(self) -> Timings:
        """Return the iterations, in the order of arrival."""
        import numpy as np

        from annotate.evidence import Timings

        took_s, at_ns = np.array(self._took_s, np.float64), np.array(self._at_ns, np.int64)
        first = 0
        for place in range(0, len(self._pieces), 3):
            count, now_ns, begin_ns = self._pieces[place : place + 3]
            piece = slice(first, first + count)
            first += count
            if begin_ns == _UNKNOWN_NS or not count:
                continue
            ended_ns = np.cumsum(took_s[piece] * 1e9)
            total_ns = float(ended_ns[-1])
            # Times with a sum above the elapsed time (from several streams, or not in seconds) are spread over the elapsed
            # time.
            scale = (now_ns - begin_ns) / total_ns if total_ns > now_ns - begin_ns else 1.0
            at_ns[piece] = now_ns - ((total_ns - ended_ns + took_s[piece] * 1e9) * scale).astype(np.int64)
        return Timings(at_ns, took_s)


def _add_durations(out: array[float], times: Iterable[float], complain: Callable[[str], object]) -> None:
    """Add durations; an invalid value becomes zero, and an exception of the iterable adds a zero."""
    before_count, refused_count, why = len(out), 0, ""
    try:
        for one in times:  # keeps the values before an exception
            try:
                took_s = _number(one)
                wrong = "" if 0.0 < took_s < LONGEST_S else f"{took_s:g} s"
            except Exception as error:  # noqa: BLE001 - the caller's types may fail in any way
                wrong = f"{type(error).__name__}: {error}"
            out.append(0.0 if wrong else took_s)
            if wrong:
                refused_count, why = refused_count + 1, why or wrong
    except Exception as error:  # noqa: BLE001 - the caller's iterable may fail in any way
        refused_count, why = refused_count + 1, why or f"{type(error).__name__}: {error}"
        out.append(0.0)
    if refused_count:
        found = f"{why} ({refused_count} of {len(out) - before_count})"
        complain(f"expected durations in seconds, found {found}; {IMPOSSIBLE}")
    elif len(out) == before_count:
        complain("expected durations in seconds, found none; the window is judged without them")


def _number(one: Any) -> float:  # a number of torch, numpy or Python
    """Convert one duration.  Raises TypeError: for arrays with axes, complex numbers, text and truth values."""
    if type(one) is float:
        return one
    if getattr(one, "shape", ()):
        raise TypeError(f"a row of shape {tuple(one.shape)}")
    dtype = getattr(one, "dtype", None)
    if getattr(dtype, "kind", "") == "c":  # numpy would drop the imaginary part with a warning
        raise TypeError(f"the complex number {one}")
    if isinstance(one, bool | str | bytes | bytearray) or str(dtype).endswith("bool"):
        raise TypeError(found_words(one))
    return float(one)


def _add_begins(out: array[int], at_ns: Iterable[int], count: int, complain: Callable[[str], object]) -> bool:
    """Add start times and return True; add none and return False for another count, a fraction or an error."""
    before_count = len(out)
    try:
        for one in at_ns:
            out.append(operator.index(one))
    except Exception as error:  # noqa: BLE001 - the caller's iterable and types may fail in any way
        complain(f"at_ns: expected whole nanoseconds of time.monotonic_ns(), found: {error}; {_BACK_TO_BACK}")
        del out[before_count:]
        return False
    if (found_count := len(out) - before_count) != count:
        complain(f"at_ns: expected {count} start times, one per duration, found {found_count}; {_BACK_TO_BACK}")
        del out[before_count:]
        return False
    return True
