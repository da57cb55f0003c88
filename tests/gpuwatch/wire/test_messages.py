"""Tests of the wire protocol."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.wire import messages
from gpuwatch.wire.shown import ShownGpu

FACTS = st.dictionaries(
    st.text(max_size=20), st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20), max_size=5
)
TEXT = st.text(max_size=30)
TIME = st.integers(0, 2**62)
REQUESTS = st.one_of(
    st.builds(messages.Hello, protocol=st.integers(0, 99), version=TEXT, source=st.none() | TEXT, state=st.none() | TEXT),
    st.builds(messages.Open, claim=TEXT, label=st.none() | TEXT, gpus=st.none() | st.lists(TEXT, max_size=3), declared=FACTS),
    st.builds(
        messages.OpenMark,
        label=st.none() | TEXT,
        declared=FACTS,
        name=st.text(min_size=1, max_size=20),
        expires_s=st.floats(1.0, 1e6),
        own=st.sampled_from(["session", "user", "pids"]),
        pids=st.lists(st.integers(1, 2**31 - 1), max_size=3),
        uid=st.none() | st.integers(0, 2**32 - 2),
    ),
    st.builds(messages.CloseMark, name=st.text(min_size=1, max_size=20), declared=FACTS),
    st.builds(messages.Close, run=TEXT, begin_ns=TIME, end_ns=TIME, declared=FACTS),
    st.builds(
        messages.Spans,
        run=TEXT,
        what=st.sampled_from(["other", "pauses"]),
        begin_ns=st.binary(max_size=40),
        end_ns=st.binary(max_size=40),
        named=st.binary(max_size=5),
        names=st.lists(TEXT, max_size=3),
    ),
    st.builds(messages.AskVerdicts, run=TEXT, wait_s=st.floats(0, 1e6)),
    st.just(messages.AskStatus()),
    st.builds(messages.AskReadings, since_ns=TIME),
    st.builds(messages.Leave, now=st.booleans()),
)


@given(REQUESTS)
def test_request_is_one_line_and_survives_a_round_trip(request: messages.Request) -> None:
    line = messages.encode(request)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert messages.decode_request(line) == request


def test_encode_replaces_text_that_is_not_utf8() -> None:
    shown = ShownGpu(device={"name": "H\udcff00"}, process_list={"processes": [{"name": "entrainements_\udcc3"}]})
    reply = messages.decode_reply(messages.encode(messages.Readings(at_ns=1, source="nvml\ud800", gpus=[shown])))
    assert isinstance(reply, messages.Readings)
    assert reply.source == "nvml�"
    assert reply.gpus[0].device == {"name": "H�00"}
    assert reply.gpus[0].process_list == {"processes": [{"name": "entrainements_�"}]}


def test_request_with_invalid_utf8_is_read() -> None:
    """A C program's label may hold any bytes; invalid UTF-8 becomes U+FFFD."""
    assert messages.decode_request(b'{"type":"open","label":"w\xc3\xa4rme \xff"}') == messages.Open(label="w\u00e4rme \ufffd")


@given(st.binary(max_size=200))
def test_bytes_that_are_not_a_message_are_refused(line: bytes) -> None:
    with contextlib.suppress(messages.WireError):  # hypothesis may generate a valid message
        messages.decode_request(line)
        return
    with pytest.raises(messages.WireError, match="expected") as caught:
        messages.decode_request(line)
    assert caught.value.code in ("bad-message", "unknown-message")
    assert "\n" not in str(caught.value)


@given(REQUESTS, st.dictionaries(st.sampled_from(["later", "newer_field"]), st.integers(), min_size=1))
def test_fields_of_a_newer_peer_are_ignored(request: messages.Request, added: dict[str, int]) -> None:
    line = json.dumps({**json.loads(messages.encode(request)), **added}).encode()
    assert messages.decode_request(line) == request


BAD: list[tuple[Any, str]] = [
    ("", "bad-message"), ("[]", "bad-message"), ("null", "bad-message"), ("{}", "bad-message"), ('{"type": 3}', "bad-message"),
    ('{"type": "open", "gpus": "all"}', "bad-message"), ('{"type": "close", "run": "a"}', "bad-message"),
    ('{"type": "close", "run": "a", "begin_ns": "now", "end_ns": 1}', "bad-message"),
    ('{"type": "open", "told": {"x": [1]}}', "bad-message"), ('{"type": "hello", "protocol": 1e99, "version": ""}', "bad-message"),
    ('{"type": "reboot"}', "unknown-message"), ("[" * 5000, "bad-message"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "code"), BAD)
def test_malformed_message_is_refused_with_a_code(line: str, code: str) -> None:
    with pytest.raises(messages.WireError, match="expected") as caught:
        messages.decode_request(line.encode())
    assert caught.value.code == code
