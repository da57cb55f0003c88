"""Cells of the tables of scores: selected rows, and printed shares, intervals and ratios."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.proof.judged import CLAIMED_NAMES
from tests.proof.scores import VALID, Row, Share
from tests.proof.testified import Variant

UNPROVEN = "unproven"


def claimed_only(row: Row) -> Row:
    """Return the row with the claimed numbers, or with the throughput alone in a plain window."""
    names = CLAIMED_NAMES if row.variant != Variant.PLAIN else ("throughput",)
    bounds = {name: bound for name, bound in row.answer.bounds.items() if name in names}
    return replace(row, answer=replace(row.answer, bounds=bounds))


def is_alarmed(row: Row) -> bool:
    return row.answer.status not in (VALID, UNPROVEN)


def is_stamped(row: Row) -> bool:
    return row.variant == Variant.STAMPED


def is_not_stamped(row: Row) -> bool:
    return row.variant != Variant.STAMPED


def share_of(of: Sequence[Row], holds: Callable[[Row], bool]) -> Share:
    return Share(count=sum(map(holds, of)), total=len(of))


def share_line(words: str, share: Share) -> str:
    return f"| {words} | {share.total} | {as_percent(share)} | {as_interval(share)} |"


def in_words(name: str) -> str:
    return name.replace("_", " ")


def as_percent(share: Share) -> str:
    return "–" if share.ratio is None else f"{share.ratio:.1%}"


def as_interval(share: Share) -> str:
    low, high = share.interval
    return f"{low:.1%} to {high:.1%}" if share.total else "–"


def as_ratio(value: float) -> str:
    return "none" if math.isinf(value) else f"{value:.2%}"
