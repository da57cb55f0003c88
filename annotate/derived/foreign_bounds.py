"""Bounds of each number for foreign work: by a listed or hidden neighbour, another window, or a second own stream."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from annotate.budget import Bound, Estimate, Group, Number, Replaces
from annotate.derived.dark_time import dark_ratio
from annotate.derived.foreign_work import ForeignWork, RecordShift
from annotate.derived.idle_gaps import Span
from annotate.derived.neighbours import Neighbours
from annotate.derived.time_accounts import TimeAccounts

FLOOR_RATIO = 0.03  # without a record: a neighbour that only takes bandwidth changed the time at one clock by 2.8 % (H200)
BOOKS_RATIO = 0.013  # the error of the books: utilisation against times of clean windows
# Under a cap the clock rises during others' turns: the mean lost only a third to two thirds of their time (H200).
_COUPLED_RATIO = 1.0 / 3.0
_COUPLED_ERROR_RATIO = 0.01  # late time of clean capped windows
_LATE_ERROR_RATIO = 0.004
_TOUCHED = (Number.THROUGHPUT, Number.MEAN, Number.MEDIAN, Number.MEDIAN_AT_CLOCK)


@dataclass(frozen=True, slots=True)
class _Maker:
    """Factory for the bounds of one rule, with the span of the foreign work."""

    rule: str
    span_ns: Span | None

    def __call__(
        self, number: Number, group: Group, ratio: float | None, estimate: Estimate | None = None, *, can_reject: bool = True
    ) -> Bound:
        return Bound(
            number=number,
            rule=self.rule,
            group=group,
            ratio=ratio,
            estimate=estimate,
            can_reject=can_reject,
            span_ns=self.span_ns,
        )


def foreign_bounds(rule: str, work: ForeignWork, *, span_ns: Span | None = None) -> tuple[Bound, ...]:
    """Return the bounds of a named process: ``contention-process``, ``display-active``, ``overlapping-window``.

    Throughput has a bound of unknown size if there is no record and the times cannot show late iterations.  With times and
    utilisation the bounds replace unresolved ones.
    """
    make = _Maker(rule, span_ns)
    found = (*_late(make, work), *_untimed(make, work), *_against_record(make, work))
    replaces = Replaces.UNRESOLVED if work.has_times and work.is_witnessed else Replaces.NOTHING
    return tuple(replace(bound, replaces=replaces) for bound in found)


def hidden_bounds(rule: str, work: ForeignWork, others: Neighbours, *, span_ns: Span | None = None) -> tuple[Bound, ...]:
    """Return the bounds of a process that is not on the list: ``contention-residual``.

    A PID that only the utilisation record names counts like a listed one.  Unexplained memory gives bounds of unknown size.
    """
    named = foreign_bounds(rule, work, span_ns=span_ns) if others.unlisted else ()
    if not others.hidden_bytes:
        return named
    make, touched = _Maker(rule, span_ns), _TOUCHED if work.has_times else _TOUCHED[:1]
    late = {bound.number: bound.estimate for bound in named if bound.group is Group.INSIDE}
    held = [make(number, Group.INSIDE, None, late.get(number)) for number in touched]
    return (*held, *(bound for bound in named if bound.group is not Group.INSIDE))


def unseen_bounds(rule: str, work: ForeignWork, accounts: TimeAccounts | None, open_ratio: float) -> tuple[Bound, ...]:
    """Return the bounds of processes that no list can show, by the rest of the books: ``contention-residual``.

    The bounds have no estimate, because the rest may be work of the measured process itself.
    """
    make = _Maker(rule, None)
    farthest = max(open_ratio, accounts.farthest_ratio() if accounts is not None else open_ratio + BOOKS_RATIO)
    late = [replace(bound, estimate=None) for bound in _late(make, work)] if work.late_ratio is not None else []
    return (make(Number.THROUGHPUT, Group.BOOKS, min(1.0, farthest)), *late)


def own_work_bounds(rule: str, work: ForeignWork, *, met: bool, span_ns: Span | None = None) -> tuple[Bound, ...]:
    """Return the bounds of other work of the same process: ``contention-self``.

    If stamps met such work but neither late iterations nor the books show it, the bounds have an unknown size.
    """
    make = _Maker(rule, span_ns)
    late, untimed = work.late_ratio or 0.0, max(0.0, work.untimed_ratio - BOOKS_RATIO)
    if met and late <= _COUPLED_ERROR_RATIO and not untimed:
        touched = _TOUCHED if work.has_times else _TOUCHED[:1]
        return tuple(make(number, Group.INSIDE, None) for number in touched)
    return foreign_bounds(rule, work, span_ns=span_ns)


def unlisted_time_bounds(others: Neighbours, length_ns: int) -> tuple[Bound, ...]:
    """Return the bounds of ``dark-time`` for proof 4, if any: excursions hidden while no process list was current."""
    dark = dark_ratio(others.silences, length_ns)
    if not dark:
        return ()
    span_ns = (others.silences[0].begin_ns, others.silences[-1].end_ns)
    make = _Maker("dark-time", span_ns)
    at_clock = make(Number.MEDIAN_AT_CLOCK, Group.DARK, dark * FLOOR_RATIO)
    return (*(make(number, Group.DARK, dark) for number in _TOUCHED[:3]), at_clock)


def _late(make: _Maker, work: ForeignWork) -> Iterator[Bound]:
    """Yield the bounds for late time inside iterations: of the mean, and of the throughput that follows from it."""
    late = work.late_ratio
    if late is None:
        if work.throughput is None:
            taken = _taken(work)
            unbounded = make(Number.THROUGHPUT, Group.INSIDE, None, taken)
            yield replace(unbounded, seen_ratio=taken.nearer_ratio if taken else 0.0)
        elif work.has_times:
            yield make(Number.THROUGHPUT, Group.INSIDE, 0.0)  # the shift against the record includes late time
        if work.has_times and work.mean is None:
            yield make(Number.MEAN, Group.INSIDE, None)
        return
    low = max(0.0, late - _COUPLED_ERROR_RATIO) * _COUPLED_RATIO if work.is_coupled else 0.9 * late
    high = max(1.1 * late, late + _LATE_ERROR_RATIO)
    yield make(Number.MEAN, Group.INSIDE, high, Estimate(low, late, high))
    slower = Estimate(-high / (1.0 + high), -late / (1.0 + late), -low / (1.0 + low))
    yield make(Number.THROUGHPUT, Group.INSIDE, -slower.low_ratio, slower)


def _taken(work: ForeignWork) -> Estimate | None:
    """Return the throughput lost to the share of others in the driver's record, at least a third; None without a share."""
    if not work.taken_ratio > 0.0:
        return None
    return Estimate(-max(work.taken_ratio, work.most_taken_ratio), -work.taken_ratio, -work.taken_ratio * _COUPLED_RATIO)


def _untimed(make: _Maker, work: ForeignWork) -> Iterator[Bound]:
    """Yield the bound for untimed busy time, or for others' share in the driver's record beyond late iterations."""
    if work.late_ratio is None:
        return
    inside = work.late_ratio / (1.0 + work.late_ratio)
    beyond = max(work.untimed_ratio, work.taken_ratio - inside, 0.0)
    if beyond:
        known = beyond - BOOKS_RATIO if work.is_witnessed else 0.0
        sure = max(0.0, known) * (_COUPLED_RATIO if work.is_coupled else 0.9)
        yield make(Number.THROUGHPUT, Group.BOOKS, beyond, Estimate(-beyond, -beyond, -sure))


def _against_record(make: _Maker, work: ForeignWork) -> Iterator[Bound]:
    """Yield the bounds for a loss common to all iterations: the shift against the record, else the largest measured one."""
    if not work.has_times:
        return
    if work.late_ratio is None:
        # Without a late share, mean and throughput are still comparable with the record.
        yield from _own_shift(make, Number.MEAN, work.mean)
        yield from _own_shift(make, Number.THROUGHPUT, work.throughput)
    else:
        # Without a time at one clock, the numbers themselves are compared with the record, late iterations included.
        yield _shifted(make, Number.MEAN, work.at_clock or work.mean)
        yield _shifted(make, Number.THROUGHPUT, work.at_clock.inverse() if work.at_clock else work.throughput)
    yield _shifted(make, Number.MEDIAN_AT_CLOCK, work.at_clock)
    # A rising clock can change the raw median, which neither late iterations nor the books show.
    median = work.median
    yield make(Number.MEDIAN, Group.RECORD, median.bound_ratio if median else None, median.estimate if median else None)


def _own_shift(make: _Maker, number: Number, found: RecordShift | None) -> Iterator[Bound]:
    if found is not None:
        yield make(number, Group.RECORD, found.bound_ratio, found.estimate)


def _shifted(make: _Maker, number: Number, found: RecordShift | None) -> Bound:
    if found is None:
        return make(number, Group.RECORD, FLOOR_RATIO, Estimate(-FLOOR_RATIO, 0.0, FLOOR_RATIO))
    return make(number, Group.RECORD, found.bound_ratio, found.estimate)
