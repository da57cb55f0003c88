"""Tests of the daemon's reading of lines: whole lines, bounded memory and time, and the end of a connection."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.daemon.line_reader import LineReader, UnfinishedLines
from gpuwatch.wire.messages import WireError

LONG = 1000


MINE, THEIRS = 1000, 1001


def heard(pieces: list[bytes], *, unfinished: UnfinishedLines | None = None, ends: bool = True) -> list[bytes]:
    async def listen() -> list[bytes]:
        reader = asyncio.StreamReader()
        lines = LineReader(reader, unfinished or UnfinishedLines(), MINE, rest_s=0.05)
        found = []
        try:
            for piece in pieces:
                reader.feed_data(piece)
                await asyncio.sleep(0)
            if ends:
                reader.feed_eof()
            while (line := await lines.next(LONG)) is not None:
                found.append(line)
        finally:
            lines.close()
        return found

    return asyncio.run(listen())


@given(st.lists(st.binary(max_size=LONG).map(lambda line: line.replace(b"\n", b"")), max_size=20), st.integers(1, 3000))
def test_lines_are_whole_for_any_cut_of_the_stream(lines: list[bytes], size: int) -> None:
    unfinished = UnfinishedLines()
    sent = b"".join(line + b"\n" for line in lines)
    assert heard([sent[i : i + size] for i in range(0, len(sent), size)], unfinished=unfinished) == lines
    assert unfinished.held_bytes(MINE) == 0


def test_unfinished_line_is_not_returned() -> None:
    unfinished = UnfinishedLines()
    assert heard([b"one\ntw"], unfinished=unfinished) == [b"one"]
    assert unfinished.held_bytes(MINE) == 0


@pytest.mark.parametrize("pieces", [[b"x" * (LONG + 1)], [b"x" * LONG, b"xx"], [b"x" * (LONG + 1) + b"\n"]])
def test_too_long_line_is_refused_ended_or_not(pieces: list[bytes]) -> None:
    with pytest.raises(WireError, match="at most 1000 bytes"):
        heard(pieces)


def test_line_that_does_not_end_in_time_is_refused() -> None:
    with pytest.raises(WireError, match=r"rest of a line within 0\.05 s"):
        heard([b"one\n", b"tw"], ends=False)


def test_unfinished_lines_of_a_user_are_bounded() -> None:
    unfinished = UnfinishedLines(user_most_bytes=100)
    unfinished.hold(MINE, 101)  # held by this user's other connections
    assert heard([b"one\n"], unfinished=unfinished) == [b"one"]  # a complete line is still accepted
    with pytest.raises(WireError, match="try again"):
        heard([b"tw"], unfinished=unfinished)
    assert unfinished.held_bytes(MINE) == 101


def test_unfinished_lines_do_not_affect_other_users() -> None:
    unfinished = UnfinishedLines(user_most_bytes=100)
    unfinished.hold(THEIRS, 101)
    assert heard([b"tw", b"o\n"], unfinished=unfinished) == [b"two"]


def waited(*pieces: bytes, ends: bool) -> bytes | None:
    """Feed these pieces, wait for the connection's end, and return the next line; None if the connection ends."""

    async def wait() -> bytes | None:
        reader, unfinished = asyncio.StreamReader(), UnfinishedLines()
        lines = LineReader(reader, unfinished, MINE)
        for piece in pieces:
            reader.feed_data(piece)
        if ends:
            reader.feed_eof()
        try:
            gone = asyncio.ensure_future(lines.gone())
            for _ in range(10):
                await asyncio.sleep(0)
            assert gone.done() == ends
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            return None if ends else await lines.next(LONG)
        finally:
            lines.close()
            assert unfinished.held_bytes(MINE) == 0

    return asyncio.run(wait())


def test_end_of_a_connection_is_noticed_between_lines() -> None:
    assert waited(ends=True) is None
    assert waited(b"one\ntwo\n", ends=True) is None


def test_lines_sent_during_a_wait_are_delivered() -> None:
    assert waited(b"one\n", b"two\n", ends=False) == b"one"


def test_lines_sent_during_a_wait_are_bounded() -> None:
    async def wait() -> None:
        reader = asyncio.StreamReader()
        lines = LineReader(reader, UnfinishedLines(), MINE)
        reader.feed_data(b"x\n" * LONG)
        try:
            await lines.gone(most_bytes=LONG)
        finally:
            lines.close()

    with pytest.raises(WireError, match="at most 1000 bytes before"):
        asyncio.run(wait())
