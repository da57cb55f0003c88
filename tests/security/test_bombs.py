"""Tests of small files that unpack to gigabytes: readers reject the file, or read it in bounded memory."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from annotate.capsule import pack
from gpuwatch.report import record
from tests.annotate.builders import evidence
from tests.waiting import PATIENCE_S

MOST_BYTES = 3 << 30  # address space, including the interpreter, numpy and scipy; threads reserve more than they use
_PROGRAM = f"""
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({MOST_BYTES}, {MOST_BYTES}))
from pathlib import Path
from gpuwatch.errors import UsageError
from gpuwatch.report import read_page
from gpuwatch.sources import recordings
readers = dict(recording=recordings.load, whole=recordings.whole, report=lambda path: read_page.load(Path(path)))
for line in sys.stdin:
    kind, path = json.loads(line)
    try:
        readers[kind](path)
        said = ""
    except UsageError as error:
        said = str(error)
    print(json.dumps(said), flush=True)
"""
_GOOD = pack.pack([evidence(length_s=1.0, signals={"power_w": 600.0, "power_cap_ns": 0})])


@dataclass
class Reader:
    """A process with limited memory that reads files one after the other; after a crash the next test starts a new one."""

    process: subprocess.Popen[str] | None = None

    def __call__(self, kind: str, path: Path) -> str:
        """Read a file; return the error as one line, or an empty text."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env={"OPENBLAS_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
            )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{json.dumps([kind, str(path)])}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the reader ended with {self.process.wait(PATIENCE_S)}"
        said = str(json.loads(line))
        assert "\n" not in said
        return said


@pytest.fixture(scope="module")
def read() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    if reader.process is not None:
        reader.process.kill()
        reader.process.communicate(timeout=PATIENCE_S)


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def altered(change: Callable[[dict[str, Any]], None], arrays: bytes = b"") -> bytes:
    with zipfile.ZipFile(io.BytesIO(_GOOD)) as archive:
        manifest, blocks = json.loads(archive.read("manifest.json")), archive.read("arrays")
    change(manifest)
    return zipped({"manifest.json": json.dumps(manifest).encode(), "arrays": blocks + arrays})


def _many_columns(manifest: dict[str, Any]) -> None:
    """Add one array of eight million numbers, referenced by two thousand columns."""
    manifest["arrays"].append([8_000_000, 1])
    number = len(manifest["arrays"]) - 1
    manifest["evidence"][0]["columns"] = {f"n{i}": [number, number] for i in range(2000)}


def _many_repeats(manifest: dict[str, Any]) -> None:
    """Add two rows an hour apart, repeated every millisecond, to two thousand columns."""
    manifest["arrays"] += [[2, 1], [0, 1]]
    times, silent = len(manifest["arrays"]) - 2, len(manifest["arrays"]) - 1
    manifest["evidence"][0]["columns"] = {f"n{i}": [times, times, 1_000_000, silent] for i in range(2000)}


def _deep(manifest: dict[str, Any]) -> None:
    manifest["evidence"][0]["told"] = json.loads("[" * 900 + "]" * 900)


def _long_window(manifest: dict[str, Any]) -> None:
    manifest["evidence"][0]["window"]["end_ns"] = 1 << 61


CAPSULES: dict[str, Callable[[], bytes]] = {
    "columns of one array": lambda: altered(_many_columns, b"\x01" + bytes(8_000_000)),
    "repeats": lambda: altered(_many_repeats, b"\x08" + bytes(8) + (2 * 3_600_000_000_000).to_bytes(8, "little") + b"\x01"),
    "depth": lambda: altered(_deep),
    "years": lambda: altered(_long_window),
    "manifest": lambda: zipped({"manifest.json": b'{"schema":2,"evidence":[' + b" " * (80 << 20), "arrays": b""}),
    "numbers": lambda: altered(lambda manifest: manifest["arrays"].append([1 << 60, 1])),
    "method": lambda: _of_method(zipfile.ZIP_LZMA),
}


def _of_method(method: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(
            "manifest.json", b"{" + b" " * (1 << 20)
        )  # the method is rejected before unpacking, so a small member suffices
        archive.writestr("arrays", b"")
    return out.getvalue()


@pytest.mark.parametrize("name", CAPSULES)
def test_small_capsule_that_unpacks_to_much_is_rejected(read: Reader, tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.capsule"
    path.write_bytes(CAPSULES[name]())
    said = read("recording", path)
    assert "expected" in said, said


def npy(shape: str, descr: str = "<f8", data: bytes = b"") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


ARCHIVES = {
    "header": {"telemetry.npy": npy("(1000000000, 1000)"), "cols.npy": npy("(1,)", "<U4", b"t\0\0\0_\0\0\0n\0\0\0s\0\0\0")},
    "no width": {
        "telemetry.npy": npy("(1, 1)", "<f8", bytes(8)),
        "mark_a.npy": npy("(1000000000,)", "<U0"),
        "cols.npy": npy("(0,)"),
    },
    "deep header": {"telemetry.npy": npy("(" * 4000 + ")" * 4000), "cols.npy": npy("(0,)")},
    "pickle": {"telemetry.npy": npy("(1,)", "|O", b"cos\nsystem\n(S'true'\ntR."), "cols.npy": npy("(0,)")},
}


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("kind", ["recording", "whole"])
def test_small_archive_that_declares_much_is_rejected(read: Reader, tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(zipped(ARCHIVES[name]))
    assert "expected" in read(kind, path)


def test_archive_larger_than_the_limit_is_rejected(read: Reader, tmp_path: Path) -> None:
    """An archive with a declared size of 2 GiB is rejected."""
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("telemetry.npy", npy("(1, 1)", "<f8", bytes(8)))
        archive.filelist[0].file_size = 2 << 30
    assert "expected an .npz of at most" in read("recording", path)


def test_report_bomb_is_read_in_bounded_memory(read: Reader, tmp_path: Path) -> None:
    """A report whose library unpacks to gigabytes is read within the memory limit.

    The report names this version as its maker, so that the reader compares the page with a page of this version.
    """
    packing = zlib.compressobj(9, wbits=31)
    head = packing.compress(b"") + packing.flush(zlib.Z_FULL_FLUSH)
    zeroes = packing.compress(bytes(1 << 24)) + packing.flush(
        zlib.Z_FULL_FLUSH
    )  # 16 MiB of zeros as a block that can be repeated
    bomb = head + zeroes * 512  # eight gigabytes
    data, packed = record.to_data(record.Record(windows=(), maker=record.maker()))
    page = (
        f'<html><meta data-nonce="{"n" * 24}"><script id="gpuwatch-record">{record.as_json(data)}</script>'
        f'<script id="gpuwatch-evidence">{packed}</script>'
        f'<script type="text/plain" id="gpuwatch-plotly">{base64.b64encode(bomb).decode()}</script></html>'
    )
    path = tmp_path / "report.html"
    path.write_text(page)
    assert len(page) < 12_000_000
    read("report", path)


def test_endless_line_and_damaged_archive_are_rejected(read: Reader, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"timestamp," * 10_000_000)
    assert "line of more than" in read("recording", path)
    path.write_bytes(b"PK\x03\x04" + bytes(1000))
    assert "damaged archive" in read("recording", path)
