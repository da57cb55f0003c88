"""Target: a log of nvidia-smi gives evidence that the judge can judge, or a one-line error."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpuwatch.errors import UsageError
from gpuwatch.sources import recordings, smi_log
from tests.fuzz.refused import in_one_line
from tests.fuzz.targets.judged import judged

_PATH = Path(tempfile.mkdtemp(prefix="gpuwatch-fuzz")) / "log.csv"


def target(data: bytes) -> None:
    query, _, log = data.partition(b"\0") if data.startswith(b"?") else (b"", b"", data)
    _PATH.write_bytes(log)
    try:
        pieces = smi_log.load(_PATH, query=query[1:].decode("utf-8", "replace") if query else None)
    except UsageError as error:
        in_one_line(error)
        return
    assert pieces
    recordings.merged(pieces)
    judged(pieces, data)
