"""What was read must be fit to be judged: the bounds of a reader are those a rule relies on."""

from __future__ import annotations

from collections.abc import Iterable

from annotate.evidence import Evidence
from annotate.judge import judge

# Judging takes about a second an hour of window, which is no finding about a reader.
_LONGEST_NS = 60_000_000_000


def judged(pieces: Iterable[Evidence]) -> None:
    for piece in pieces:
        if piece.window.length_ns <= _LONGEST_NS:
            judge(piece)
