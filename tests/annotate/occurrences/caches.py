"""Windows with a warm L2 cache, or with a flush that is too small or timed."""

from __future__ import annotations

from collections.abc import Iterator

from annotate.evidence import Evidence, Fact
from tests.annotate.builders import evidence
from tests.annotate.occurrences.harness import calls

L2_BYTES = 62_914_560  # of an H200


def scenes() -> Iterator[Evidence]:
    fits: dict[str, Fact] = {"working_set_bytes": 8_000_000, "l2_bytes": L2_BYTES}
    yield evidence(declared=fits)
    yield evidence(declared={**fits, "cache": "cold"})
    yield evidence(declared={"input_bytes": 8_000_000, "l2_bytes": L2_BYTES})
    yield evidence(declared={"call_bytes": 8_000_000}, timings=calls(1e-6))
    yield evidence(declared={"flush_bytes": 8_000_000, "l2_bytes": L2_BYTES})
    yield evidence(declared={"flush_bytes": 134_217_728, "flush_timed": True})
