"""A check that no rule fails on evidence from a reader: for one input in eight, and windows of at most 60 s."""

from __future__ import annotations

from collections.abc import Iterable

from annotate.evidence import Evidence
from annotate.judge import judge
from tests.fuzz.refused import sampled

# Judging a long window takes long, which is not a defect of a reader.
_LONGEST_NS = 60_000_000_000
_ONE_IN = 8  # judge one input in this number, because judging takes longer than reading


def judged(pieces: Iterable[Evidence], data: bytes) -> None:
    for piece in pieces if sampled(data, _ONE_IN) else ():
        if piece.window.length_ns <= _LONGEST_NS:
            assert judge(piece).failed == ()  # the verdict lists the rules that failed
