"""A line from a client: refused by code in one line, or a message that is the same after another trip."""

from __future__ import annotations

from gpuwatch import wire
from tests.fuzz.refused import in_one_line


def target(data: bytes) -> None:
    try:
        request = wire.decode_request(data)
    except wire.WireError as error:
        in_one_line(error)
        code = error.code
    else:
        code = ""
    if code:
        assert code in ("bad-message", "unknown-message")
        return
    line = wire.encode(request)
    assert line.count(b"\n") == 1
    assert wire.decode_request(line) == request
