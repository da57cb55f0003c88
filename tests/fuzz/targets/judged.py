"""What was read must be fit to be judged: the bounds of a reader are those a rule relies on."""

from __future__ import annotations

from collections.abc import Iterable

from annotate.evidence import Evidence
from annotate.judge import judge
from tests.fuzz.refused import sampled

# Judging takes about a second an hour of window, which is no finding about a reader.
_LONGEST_NS = 60_000_000_000
_ONE_IN = 8  # inputs, because judging takes ten times as long as reading


def judged(pieces: Iterable[Evidence], data: bytes) -> None:
    for piece in pieces if sampled(data, _ONE_IN) else ():
        if piece.window.length_ns <= _LONGEST_NS:
            assert judge(piece).failed == ()  # the judge answers for a rule that fails: it must not come to that
