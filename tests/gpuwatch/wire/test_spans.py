"""Tests of spans in messages: valid ones become evidence, others are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from annotate.evidence import Pause
from gpuwatch.errors import UsageError
from gpuwatch.wire import spans
from gpuwatch.wire.messages import PAUSES_COUNT, Spans


def a_message(**changes: Any) -> Spans:
    at_ns = np.array([5, 20], "<i8")
    message = Spans(
        run="run",
        what="other",
        begin_ns=at_ns.tobytes(),
        end_ns=(at_ns + 10).tobytes(),
        named=b"\1\0",
        names=["check", "flush"],
    )
    return msgspec.structs.replace(message, **changes)


def test_span_messages_become_other_work_in_order() -> None:
    assert spans.check(a_message(), 0) == 2
    found = spans.decode([a_message(), a_message(names=["a", "b"])])
    assert found is not None
    other = found.as_other_work()
    assert other.kinds == ("flush", "check", "b", "a")
    assert other.spans_ns == ((5, 15), (20, 30), (5, 15), (20, 30))


def test_pauses_are_sorted_by_start_time() -> None:
    late, early = Pause(9, 12, "collector"), Pause(2, 30, "compilation")
    found = spans.of_pauses([late, early])
    assert found is not None
    assert found.as_pauses() == (early, late)
    assert spans.of_pauses([]) is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"begin_ns": b"12345678"}, "expected 16 bytes"),
        ({"end_ns": np.array([1, 2], "<i8").tobytes()}, "every end at or after its start, .* found 5 to 1;"),
        ({"end_ns": np.array([1 << 62, 30], "<i8").tobytes()}, r"times within 2\^62 ns, found 5 to 4611686018427387904;"),
        ({"named": b"\1\2"}, "expected one of 2 names"),
        ({"names": []}, "expected one of 0 names"),
    ],
)
def test_inconsistent_span_message_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        spans.check(a_message(**changes), 0)


def test_too_many_pauses_are_refused() -> None:
    assert spans.check(a_message(what="pauses"), PAUSES_COUNT - 2) == 2
    with pytest.raises(UsageError, match=f"at most {PAUSES_COUNT} pauses"):
        spans.check(a_message(what="pauses"), PAUSES_COUNT - 1)
