"""Evidence that records the parts that a computation read, and caches computed values."""

from dataclasses import replace

from annotate.evidence import Evidence
from annotate.evidence.asked import FACTS, TIMES, Asked, Memory, kept
from tests.annotate.builders import evidence

_CALLS: list[str] = []


@kept
def entries_count(about: Evidence) -> int:
    _CALLS.append("entries")
    return 0 if about.timings is None else len(about.timings.at_ns)


@kept
def rows_count(about: Evidence) -> int:
    _CALLS.append("rows")
    return len(about.within("sm_clock_mhz"))


def test_asked_evidence_computes_once_for_each_memory() -> None:
    _CALLS.clear()
    asked = Asked.of(evidence(), Memory())
    assert rows_count(asked) == rows_count(asked) == rows_count(evidence()) > 0
    assert _CALLS == ["rows", "rows"]  # once with a memory, once without


def test_asked_narrow_pass_reuses_values_of_a_wide_pass() -> None:
    """A pass without times reuses the clock's rows of the pass with times, and counts entries again."""
    _CALLS.clear()
    wide = Memory()
    whole = Asked.of(evidence(), wide)
    narrow = Asked.of(replace(evidence(), timings=None, declared={}), Memory((wide, FACTS | TIMES)))
    rows_count(whole), entries_count(whole)
    assert (rows_count(narrow), entries_count(narrow)) == (rows_count(evidence()), 0)
    assert _CALLS == ["rows", "entries", "entries", "rows"]


def test_asked_evidence_notes_that_times_were_read() -> None:
    memory = Memory()
    asked = Asked.of(evidence(), memory)
    assert memory.noting(lambda: rows_count(asked))[1] == 0
    assert memory.noting(lambda: entries_count(asked))[1] == TIMES
    assert memory.noting(lambda: entries_count(asked))[1] == TIMES  # recalled, and still read


def test_replaced_evidence_has_no_memory() -> None:
    assert type(replace(Asked.of(evidence(), Memory()), timings=None)) is Evidence
