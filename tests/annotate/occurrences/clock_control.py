from __future__ import annotations

from collections.abc import Iterator

from annotate.evidence import Evidence


def scenes() -> Iterator[Evidence]:
    yield from ()
