"""Lines from one connection, and what a client may make the daemon hold and wait for while it sends them."""

from __future__ import annotations

import asyncio

from gpuwatch import wire
from gpuwatch.wire import WireError

LINE_S = 30.0  # a line that was begun ends within this: a client that stops in the middle holds its piece no longer
PIECE_BYTES = 1 << 16
HALF_SAID_BYTES = 64 << 20  # of all connections together: a thousand may hold half a line each, and not a gigabyte


class HalfSaid:
    """How much of lines that have not ended yet all connections hold."""

    def __init__(self, most_bytes: int = HALF_SAID_BYTES) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0


class Lines:
    """Reads line by line, and is of no more use once it raised WireError."""

    def __init__(self, reader: asyncio.StreamReader, half_said: HalfSaid, *, rest_s: float = LINE_S) -> None:
        self._reader = reader
        self._half_said = half_said
        self._rest_s = rest_s
        self._buffer = bytearray()

    async def next(self, most_bytes: int = wire.LINE_BYTES) -> bytes | None:
        """The next line without its end; None at the end of all.  It may be long in coming, and not in ending.

        Raises WireError for one that is too long or too slow, or too much beside what all others hold.
        """
        searched = 0
        if self._buffer:  # who says the next before the last was answered takes turns with all others
            await asyncio.sleep(0)
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > most_bytes:
                raise WireError("too-long", f"expected a line of at most {most_bytes} bytes")
            if self._buffer and self._half_said.held_bytes > self._half_said.most_bytes:
                raise WireError("busy", "too many clients are in the middle of a line; try again")
            if not (piece := await self._piece()):
                return None
            self._hold(piece)
        line = bytes(self._buffer[:end])
        self._let_go(end + 1)
        if len(line) > most_bytes:
            raise WireError("too-long", f"expected a line of at most {most_bytes} bytes")
        return line

    def close(self) -> None:
        self._let_go(len(self._buffer))

    async def _piece(self) -> bytes:
        if not self._buffer:
            return await self._reader.read(PIECE_BYTES)
        try:
            return await asyncio.wait_for(self._reader.read(PIECE_BYTES), self._rest_s)
        except TimeoutError:
            raise WireError("too-slow", f"expected the rest of a line within {self._rest_s:g} s") from None

    def _hold(self, piece: bytes) -> None:
        self._buffer += piece
        self._half_said.held_bytes += len(piece)

    def _let_go(self, count: int) -> None:
        del self._buffer[:count]
        self._half_said.held_bytes -= count
