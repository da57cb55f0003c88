"""The registry of readers, and the recognition of the tool that wrote a result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from annotate.output.report import plain
from gpuwatch.errors import UsageError
from gpuwatch.results.bounded_file import decode
from gpuwatch.results.collective_results import read_nccl_tests
from gpuwatch.results.file_bytes import read_bytes
from gpuwatch.results.kernel_results import read_kernelbench, read_kernelbot
from gpuwatch.results.nvbench_results import read_nvbench
from gpuwatch.results.repeated_results import read_google_benchmark, read_hyperfine
from gpuwatch.results.result_file import ResultFile
from gpuwatch.results.serving_results import read_serving
from gpuwatch.results.table_results import ColumnNames, read_table

ResultReader: TypeAlias = Callable[[Path, bytes], ResultFile]
FORMATS = "vLLM, SGLang, NVBench, nccl-tests, hyperfine, Google Benchmark, KernelBench, kernelbot"
_HEAD_BYTES = 65_536
_KERNELBOT_LINES = (b"benchmark-count:", b"test-count:", b"check:")


def is_result(path: Path) -> bool:
    """Return True if a file begins like a result file: JSON, or the lines of kernelbot's harness."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:
        return False  # ``read_results`` reports the error
    return head[:1] in (b"{", b"[") or head.startswith(_KERNELBOT_LINES)


def read_results(path: Path, columns: ColumnNames | None = None) -> ResultFile:
    """Read a result file, in a known format or by named columns.

    Raises UsageError: for any other file.
    """
    blob = read_bytes(path)
    try:
        if columns is not None:
            return read_table(path, blob, columns)
        blob = blob.removeprefix(b"\xef\xbb\xbf")
        return _reader_of(blob)(path, blob)
    except UsageError:
        raise
    except (ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        message = plain(" ".join(str(error).split()))
        raise UsageError(f"{path}: {message[:300] or type(error).__name__}") from error


def _reader_of(blob: bytes) -> ResultReader:
    """Choose a reader by the top-level names.  Raises ValueError: when none matches."""
    if blob.lstrip().startswith(_KERNELBOT_LINES):
        return read_kernelbot
    keys = _top(blob)
    for needed, reader in _BY_KEYS:
        if needed <= keys.keys():
            return reader
    if "results" in keys:
        return read_nccl_tests if {"config", "nccl_version"} & keys.keys() else read_hyperfine
    if any(key.startswith("benchmark.") for key in keys):
        return read_kernelbot
    if keys and all(key.isdecimal() or key.startswith("level") for key in keys):
        return read_kernelbench
    found = ", ".join(list(keys)[:8]) or "an empty object"
    raise ValueError(f"expected results of {FORMATS}, or --times COLUMN of another file, found JSON with {found}")


_BY_KEYS: tuple[tuple[set[str], ResultReader], ...] = (
    ({"benchmarks", "devices"}, read_nvbench),
    ({"benchmarks", "context"}, read_google_benchmark),
    ({"duration", "completed"}, read_serving),
)


def _top(blob: bytes) -> dict[str, msgspec.Raw]:
    form = dict[str, msgspec.Raw]
    try:
        return decode(blob, form)
    except ValueError as error:
        lines = blob.strip().splitlines()
        if len(lines) < 2 or not lines[-1].lstrip().startswith(b"{"):
            raise ValueError(f"expected results of {FORMATS}, or --times COLUMN of another file, found {error}") from error
        return decode(lines[-1], form)  # one appended result per line
