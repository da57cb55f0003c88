"""Reading and writing of lines on one connection, with bounds on the memory and time that a client can occupy."""

import asyncio
from collections import Counter

from gpuwatch.wire import messages
from gpuwatch.wire.messages import WireError

READ_S = 30.0  # a client that does not read its answer for this long is treated as gone
LINE_S = 30.0  # the longest pause within a line: a client that stops midway must not hold memory
PIECE_BYTES = 1 << 16
USER_UNFINISHED_BYTES = 64 << 20  # limit for all connections of one user: a thousand connections could hold a gigabyte


class UnfinishedLines:
    """The bytes of unfinished lines, counted by user: one user's bytes never cause the refusal of another user."""

    def __init__(self, user_most_bytes: int = USER_UNFINISHED_BYTES) -> None:
        self.user_most_bytes = user_most_bytes
        self._by_uid: Counter[int] = Counter()

    def held_bytes(self, uid: int) -> int:
        return self._by_uid[uid]

    def hold(self, uid: int, count: int) -> None:
        """Count bytes of a user; a negative count releases them."""
        self._by_uid[uid] += count
        if not self._by_uid[uid]:
            del self._by_uid[uid]

    def check_room(self, uid: int) -> None:
        """Raise WireError if this user's connections hold too much."""
        if self._by_uid[uid] > self.user_most_bytes:
            raise WireError(
                "busy",
                f"expected at most {self.user_most_bytes} bytes of unfinished lines per user, found {self._by_uid[uid]}; try again",
            )


class LineReader:
    """A reader of the lines of one connection.  After WireError the reader is unusable."""

    def __init__(self, reader: asyncio.StreamReader, unfinished: UnfinishedLines, uid: int, *, rest_s: float = LINE_S) -> None:
        self._reader = reader
        self._unfinished = unfinished
        self._uid = uid
        self._rest_s = rest_s
        self._buffer = bytearray()

    async def next(self, most_bytes: int = messages.LINE_BYTES) -> bytes | None:
        """Return the next line without its end, or None at the end of the stream.  A line's first byte may take any time.

        Raises WireError: for a line that is too long or too slow, or when this user's connections hold too many bytes.
        """
        searched = 0
        if self._buffer:  # the next line was sent early: let other connections run first
            await asyncio.sleep(0)
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > most_bytes:
                raise WireError("too-long", f"expected a line of at most {most_bytes} bytes, found a longer one")
            if self._buffer:
                self._unfinished.check_room(self._uid)
            if not (piece := await self._piece()):
                return None
            self._hold(piece)
        line = bytes(self._buffer[:end])
        self._let_go(end + 1)
        if len(line) > most_bytes:
            raise WireError("too-long", f"expected a line of at most {most_bytes} bytes, found {len(line)}")
        return line

    async def gone(self, most_bytes: int = messages.LINE_BYTES) -> None:
        """Wait until the client closes the connection, and buffer the lines that arrive before.

        Raises WireError: when the client sends too many bytes, or this user's connections hold too many.
        """
        while piece := await self._reader.read(PIECE_BYTES):
            self._hold(piece)
            self._unfinished.check_room(self._uid)
            if len(self._buffer) > most_bytes:
                raise WireError(
                    "too-long",
                    f"expected at most {most_bytes} bytes before the last answer, found {len(self._buffer)}; read answers first",
                )

    def close(self) -> None:
        self._let_go(len(self._buffer))

    async def _piece(self) -> bytes:
        if not self._buffer:
            return await self._reader.read(PIECE_BYTES)
        try:
            return await asyncio.wait_for(self._reader.read(PIECE_BYTES), self._rest_s)
        except TimeoutError:
            raise WireError("too-slow", f"expected the rest of a line within {self._rest_s:g} s, found none") from None

    def _hold(self, piece: bytes) -> None:
        self._buffer += piece
        self._unfinished.hold(self._uid, len(piece))

    def _let_go(self, count: int) -> None:
        del self._buffer[:count]
        self._unfinished.hold(self._uid, -count)


async def receive(
    lines: LineReader, writer: asyncio.StreamWriter, most_bytes: int = messages.LINE_BYTES
) -> messages.Request | None:
    """Return the next request, or None at the end of the stream or after a refused line.  Refuse a malformed request and read on."""
    while True:
        try:
            line = await lines.next(most_bytes)
        except messages.WireError as error:
            await send(writer, messages.refused(error.code, error))
            return None
        if line is None:
            return None
        try:
            return messages.decode_request(line)
        except messages.WireError as error:
            await send(writer, messages.refused(error.code, error))


async def send(writer: asyncio.StreamWriter, message: messages.Message) -> None:
    """Send a message.

    Raises ConnectionResetError: when the peer is gone, so that its queued requests are dropped.
    Raises TimeoutError: when the peer does not read the message in time.
    """
    writer.write(messages.encode(message))
    if writer.is_closing():
        raise ConnectionResetError
    # The kernel accepts nearly every answer at once, and a wait with a time limit costs as much as the write.
    if writer.transport.get_write_buffer_size():
        await asyncio.wait_for(writer.drain(), READ_S)
