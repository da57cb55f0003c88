"""Target: an .npz recording gives evidence that the judge can judge, or a one-line error.

The input is the file itself, or the choices that generate a file's arrays.
"""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from gpuwatch.errors import UsageError
from gpuwatch.sources import recordings
from tests.fuzz.dealt import Dealt
from tests.fuzz.refused import in_one_line
from tests.fuzz.targets.judged import judged

_PATH = Path(tempfile.mkdtemp(prefix="gpuwatch-fuzz")) / "recording.npz"
_COLUMNS = ("t_ns", "sm_mhz", "power_mw", "reasons", "util_gpu", "energy_mj", "viol_power_ns", "other")
_NAMES = ("telemetry", "cols", "mark_a", "mark_b", "timing_a", "device", "extra")
_TYPES = ("<i8", "<f8", "<f4", "<u1", "<i4", "<U9", "|S3", "<c16", "|b1", "<M8[ns]", "|V4", "|O", ">i8", "<f2")


def target(data: bytes) -> None:
    dealt = Dealt(data)
    if dealt.byte() < 64:
        _PATH.write_bytes(dealt.rest())
    else:
        _PATH.write_bytes(_archive(dealt))
    for read in (recordings.load, recordings.whole):
        try:
            pieces = read(_PATH)
        except UsageError as error:
            in_one_line(error)
            continue
        judged(pieces, data)


def _archive(dealt: Dealt) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, array in _good(dealt).items():
            archive.writestr(f"{name}.npy", _npy(array))
        for _ in range(dealt.byte() % 4):
            archive.writestr(f"{dealt.choice(_NAMES)}.npy", _header(dealt) + dealt.piece())
    return out.getvalue()


def _good(dealt: Dealt) -> dict[str, Any]:
    """Return arrays with valid names and shapes, and arbitrary numbers."""
    rows = dealt.byte() % 8
    names = [name for name in _COLUMNS if dealt.byte() % 4] if dealt.byte() % 8 == 0 else list(_COLUMNS)
    table = np.array([[_number(dealt) for _ in names] for _ in range(rows)], np.float64).reshape(rows, len(names))
    if "t_ns" in names and dealt.byte() % 4:
        table[:, names.index("t_ns")] = np.arange(rows) * 1e8
    marks = [int(_number(dealt)) if dealt.byte() % 8 == 0 else each * 1_000_000_000 for each in range(2)]
    return {
        "telemetry": table,
        "cols": np.array(names),
        "mark_a": np.clip(np.array(marks, object), -(2**63), 2**63 - 1).astype(np.int64),
        "timing_a": np.array([[_number(dealt), _number(dealt)] for _ in range(dealt.byte() % 4)], np.float64).reshape(-1, 2),
        **({"device": np.array(dealt.text())} if dealt.byte() % 2 else {}),
    }


def _number(dealt: Dealt) -> float:
    kind = dealt.byte()
    if kind < 128:
        return float(kind * 10)
    found = float(np.frombuffer(bytes(dealt.byte() for _ in range(8)), "<f8")[0]) if kind < 192 else float(dealt.number())
    return found if np.isfinite(found) and abs(found) < 1e300 else (kind - 160) / 8


def _npy(array: Any) -> bytes:  # of any type
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=False)
    return out.getvalue()


def _header(dealt: Dealt) -> bytes:
    """Return a header of a member, which can declare more data than the member has."""
    shape = tuple(abs(dealt.number(dealt.byte() % 9)) for _ in range(dealt.byte() % 4))
    text = repr({"descr": dealt.choice(_TYPES), "fortran_order": bool(dealt.byte() % 2), "shape": shape})
    if dealt.byte() % 8 == 0:
        text = dealt.text()
    coded = text.encode("latin-1", "replace")
    return b"\x93NUMPY\x01\x00" + min(len(coded), 65_535).to_bytes(2, "little") + coded
