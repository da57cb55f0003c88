"""Spans next to one window's timings: declared other work and pauses."""

from collections import Counter
from dataclasses import dataclass, field

from annotate.evidence import Pause
from gpuwatch.errors import UsageError
from gpuwatch.interfaces import Run
from gpuwatch.wire import spans
from gpuwatch.wire.messages import PAUSES_COUNT, SPAN_NAMES_COUNT, Spans
from gpuwatch.wire.spans import NamedSpans


@dataclass(slots=True)
class BesideTimes:
    """Spans that the window's process declares, and pauses that the daemon observed."""

    seen: list[Pause] = field(default_factory=list)  # observed by the daemon, at most PAUSES_COUNT
    _declared: list[Spans] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)
    _names: set[str] = field(default_factory=set)

    @property
    def spans_count(self) -> int:
        return self._counts.total()

    def count(self, piece: Spans) -> int:
        """Return the number of spans in a message.

        Raises UsageError: for a malformed span, or too many spans or names.
        """
        names = self._names | set(piece.names)
        if len(names) > SPAN_NAMES_COUNT:
            raise UsageError(f"spans: expected at most {SPAN_NAMES_COUNT} names per window, found {len(names)}; reuse names")
        return spans.check(piece, self._counts[piece.what])

    def add(self, piece: Spans, count: int) -> None:
        self._declared.append(piece)
        self._counts[piece.what] += count
        self._names |= set(piece.names)

    def see(self, pause: Pause) -> None:
        """Keep a pause that the daemon observed; beyond ``PAUSES_COUNT``, drop the oldest."""
        self.seen.append(pause)
        del self.seen[:-PAUSES_COUNT]

    def take(self, run: Run) -> dict[str, NamedSpans]:
        """Return the spans under the keys ``other`` and ``pauses``, if any, and forget all spans.

        Pauses outside the window are left out.
        """
        end_ns = run.begin_ns if run.end_ns is None else run.end_ns
        other = spans.decode([piece for piece in self._declared if piece.what == "other"])
        declared = spans.decode([piece for piece in self._declared if piece.what == "pauses"])
        pauses = [*(declared.as_pauses() if declared is not None else ()), *self.seen]
        inside = spans.of_pauses(each for each in pauses if each.begin_ns < end_ns and each.end_ns > run.begin_ns)
        self._declared.clear()
        self._counts.clear()
        self.seen.clear()
        return {what: found for what, found in (("other", other), ("pauses", inside)) if found is not None}
