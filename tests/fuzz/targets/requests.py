"""Target: a line from a client gives a one-line error with a code, or a message that survives a round trip."""

from __future__ import annotations

from gpuwatch.wire import messages
from tests.fuzz.refused import in_one_line


def target(data: bytes) -> None:
    try:
        request = messages.decode_request(data)
    except messages.WireError as error:
        in_one_line(error)
        code = error.code
    else:
        code = ""
    if code:
        assert code in ("bad-message", "unknown-message")
        return
    line = messages.encode(request)
    assert line.count(b"\n") == 1
    assert messages.decode_request(line) == request
