"""A check that the judge can judge everything a reader accepts: the reader's bounds are those of the rules."""

from __future__ import annotations

from collections.abc import Iterable

from annotate.evidence import Evidence
from annotate.judge import judge
from tests.fuzz.refused import sampled

# Judging takes about a second per hour of window, which is no defect of a reader.
_LONGEST_NS = 60_000_000_000
_ONE_IN = 8  # number of inputs, because judging takes ten times as long as reading


def judged(pieces: Iterable[Evidence], data: bytes) -> None:
    for piece in pieces if sampled(data, _ONE_IN) else ():
        if piece.window.length_ns <= _LONGEST_NS:
            assert judge(piece).failed == ()  # the judge reports a failed rule in the verdict: there must be none
