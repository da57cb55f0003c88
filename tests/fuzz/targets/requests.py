"""A line from a client: refused by code in one line, or a message that is the same after another trip."""

from __future__ import annotations

from gpuwatch import wire


def target(data: bytes) -> None:
    try:
        request = wire.decode_request(data)
    except wire.WireError as error:
        assert error.code in ("bad-message", "unknown-message")
        assert "\n" not in str(error)
        return
    line = wire.encode(request)
    assert line.count(b"\n") == 1
    assert wire.decode_request(line) == request
