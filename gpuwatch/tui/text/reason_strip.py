"""Clock event reasons over time, one letter per slice: the gravest reason, or without one a dash if partly unobserved."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from annotate.evidence import Column, Times
from gpuwatch.tui.text.plot import HOLDS_NS, Span
from gpuwatch.tui.text.words import CHIPS, KNOWN_MASK, NOTHING, UNKNOWN, Chip, Piece, Tone, chips

_MOST = 2.0**52  # a larger value is not a mask
_TONES = (Tone.BAD, Tone.WARN, Tone.NOTE, Tone.DIM)
# Bits and chips; an unnamed bit may be grave, so it precedes harmless ones.
_GRAVEST_FIRST: Sequence[tuple[int, Chip]] = sorted(
    [*((reason.value, chip) for reason, chip in CHIPS.items()), (~KNOWN_MASK, UNKNOWN)],
    key=lambda entry: _TONES.index(entry[1].tone),
)
NOT_OBSERVED = Chip(NOTHING, "not observed", Tone.DIM)
NONE = Chip("·", "none", Tone.DIM)


@dataclass(frozen=True, slots=True)
class ReasonSlices:
    """All reasons in each slice of a span.  ``seen`` is True if part of the slice was observed, ``whole`` if all was."""

    masks: Times
    seen: npt.NDArray[np.bool_]
    whole: npt.NDArray[np.bool_]

    def mask(self, index: int) -> int | None:
        return int(self.masks[index]) if self.seen[index] else None


def slices(column: Column, span: Span) -> ReasonSlices:
    """Cut a column of masks into slices; each mask holds until the next row, for ``HOLDS_NS`` at most."""
    count = span.slices_count
    if not len(column) or span.end_ns <= span.begin_ns:
        return ReasonSlices(np.zeros(count, np.int64), np.zeros(count, bool), np.zeros(count, bool))
    begins_ns, ends_ns, masks = _intervals(column)
    edges_ns = span.edges_ns()
    # A slice overlaps the intervals from the first that ends after its start to the last that starts before its end.
    first = np.searchsorted(ends_ns, edges_ns[:-1], side="right")
    last = np.searchsorted(begins_ns, edges_ns[1:], side="left")
    met = last > first
    found = np.zeros(count, np.int64)
    found[met] = _ored(masks, first[met], last[met])
    covered_ns = np.concatenate(([0], np.cumsum(ends_ns - begins_ns)))
    inside_ns = np.zeros(count, np.int64)
    begun, ended = first[met], last[met] - 1
    inside_ns[met] = (
        covered_ns[ended + 1]
        - covered_ns[begun]
        - np.maximum(0, edges_ns[:-1][met] - begins_ns[begun])
        - np.maximum(0, ends_ns[ended] - edges_ns[1:][met])
    )
    return ReasonSlices(found, met, met & (inside_ns >= np.diff(edges_ns)))


def letters(of: ReasonSlices) -> list[Chip]:
    """Return the chip of the gravest reason in each slice; without a reason, NONE or (if partly unobserved) NOT_OBSERVED."""
    codes = np.where(of.whole, 1, 0)
    for code, (bits, _) in enumerate(reversed(_GRAVEST_FIRST), start=2):
        codes = np.where(of.seen & (of.masks & bits != 0), code, codes)
    shown = [NOT_OBSERVED, NONE, *(chip for _, chip in reversed(_GRAVEST_FIRST))]
    return [shown[code] for code in codes.tolist()]


def pieces(cells: Sequence[Chip]) -> list[Piece]:
    """Return cells as text, cut at each change of tone."""
    return [Piece("".join(cell.letter for cell in alike), tone) for tone, alike in itertools.groupby(cells, attrgetter("tone"))]


def shares(column: Column, begin_ns: int, end_ns: int) -> dict[Chip, float]:
    """Return each reason's share of the observed time, gravest first, without absent reasons."""
    if not len(column):
        return {}
    begins_ns, ends_ns, masks = _intervals(column)
    lengths_ns = np.clip(np.minimum(ends_ns, end_ns) - np.maximum(begins_ns, begin_ns), 0, None)
    total_ns = int(lengths_ns.sum())
    every = int(np.bitwise_or.reduce(masks[lengths_ns > 0], initial=0))
    unknown = next((chip for chip in chips(every) if chip.letter == UNKNOWN.letter), UNKNOWN)
    return {
        (unknown if chip is UNKNOWN else chip): float(lengths_ns[masks & bits != 0].sum() / total_ns)
        for bits, chip in _GRAVEST_FIRST
        if every & bits
    }


def _intervals(column: Column) -> tuple[Times, Times, Times]:
    """Return start times, end times and masks of the intervals with a valid mask, in order and disjoint."""
    begins_ns = column.at_ns
    ends_ns = np.minimum(np.append(begins_ns[1:], begins_ns[-1] + HOLDS_NS), begins_ns + HOLDS_NS)
    good = np.isfinite(column.values) & (column.values >= 0) & (column.values < _MOST) & (ends_ns > begins_ns)
    return begins_ns[good], ends_ns[good], column.values[good].astype(np.int64)


def _ored(masks: Times, first: npt.NDArray[np.intp], last: npt.NDArray[np.intp]) -> Times:
    """Combine all bits of masks[first:last], each range at least one long."""
    padded = np.append(masks, 0)
    # reduceat takes pairs: even places are the intervals, odd ones lie between them.
    pairs = np.stack((first, last), axis=1).ravel()
    return np.asarray(np.bitwise_or.reduceat(padded, pairs)[::2], np.int64)
