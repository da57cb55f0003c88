"""Parts of a Parquet data set.  Each part is written completely or not at all, and never changed."""

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from annotate import __version__
from gpuwatch.errors import ExportError, UsageError
from gpuwatch.fleet.columns import COLUMNS, SCHEMA, ColumnKind, ExportColumn
from gpuwatch.fleet.rows import Row

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise UsageError(
        "--parquet: expected the optional package pyarrow, found none; run: pip install 'gpuwatch-validity[fleet]'"
    ) from error

# DuckDB's own size of a row group; DuckDB divides work by row groups.
GROUP_ROWS_COUNT = 122_880
_PARTS = uuid.UUID("6f0b7d0e-5a38-4f6c-9d57-9a2d43a1c0b5")  # any constant namespace
_TORN = ".tmp"

_PLAIN: Mapping[ColumnKind, Any] = {
    ColumnKind.TEXT: pa.string(),
    ColumnKind.WHOLE: pa.int64(),
    ColumnKind.NUMBER: pa.float64(),
    ColumnKind.FLAG: pa.bool_(),
    ColumnKind.MOMENT: pa.timestamp("us", tz="UTC"),
    ColumnKind.TEXTS: pa.list_(pa.string()),
    ColumnKind.NUMBERS: pa.map_(pa.string(), pa.float64()),
    ColumnKind.WORDS: pa.map_(pa.string(), pa.string()),
}


def arrow_schema() -> Any:  # a pyarrow.Schema; pyarrow has no annotations
    """Return the contract as an Arrow schema, with metadata: meaning and unit per field, schema number and version."""
    about = {"gpuwatch.schema": str(SCHEMA), "gpuwatch.version": __version__}
    return pa.schema([_field(column) for column in COLUMNS], metadata=about)


def _field(column: ExportColumn) -> Any:
    kind = pa.list_(pa.struct([_field(inner) for inner in column.inner])) if column.inner else _PLAIN[column.kind]
    about = {"meaning": column.meaning} | ({"unit": column.unit} if column.unit else {})
    return pa.field(column.name, kind, nullable=not column.always, metadata=about)


def table(rows: Sequence[Row]) -> Any:
    return pa.Table.from_pylist(list(rows), schema=arrow_schema())


def part_name(run_ids: Iterable[str]) -> str:
    """Return a name that depends only on the runs, so that a second copy of a part replaces the first."""
    return f"part-{uuid.uuid5(_PARTS, ' '.join(sorted(run_ids)))}.parquet"


def run_ids(folder: Path) -> set[str]:
    """Return the runs in a partition.

    Raises ExportError: for an unreadable part, because its runs are unknown.
    """
    found: set[str] = set()
    for path in sorted(folder.glob("part-*.parquet")):
        try:
            found.update(pq.ParquetFile(path).read(columns=["run"]).column("run").to_pylist())
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            why = " ".join(str(error).split())
            raise ExportError(
                f"{path}: expected a part that gpuwatch wrote, found: {why}; move this file to another folder and export again"
            ) from error
    return found


def write_part(folder: Path, ids: Sequence[str], chunks: Iterator[Sequence[Row]]) -> tuple[Path, int]:
    """Write one part of these runs; return its path and number of rows.

    Readers look for ``*.parquet``, so the part has another name until all data is on disk.
    Raises ExportError: when writing fails.
    """
    path = folder / part_name(ids)
    torn = path.with_name(f".{path.name}{_TORN}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clear(folder)
        try:
            with torn.open("xb") as file:
                _hold(file.fileno())
                rows_count = _write(file, chunks)
                file.flush()
                os.fsync(file.fileno())
            torn.replace(path)
        finally:
            torn.unlink(missing_ok=True)
        _sync(folder)
    except (OSError, pa.ArrowException) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
        raise ExportError(f"{path}: cannot be written: {why}; earlier parts are kept; correct this and export again") from error
    return path, rows_count


def _clear(folder: Path) -> None:
    """Remove the temporary files of killed exports; a running export holds a lock on its file."""
    for left in folder.glob(f".part-*{_TORN}"):
        with contextlib.suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink(missing_ok=True)


def _hold(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _write(file: Any, chunks: Iterator[Sequence[Row]]) -> int:
    rows_count = 0
    waiting: list[Any] = []
    with pq.ParquetWriter(file, arrow_schema(), compression="zstd") as writer:
        for rows in chunks:
            waiting.append(table(rows))
            rows_count += len(rows)
            if sum(each.num_rows for each in waiting) >= GROUP_ROWS_COUNT:
                writer.write_table(pa.concat_tables(waiting), row_group_size=GROUP_ROWS_COUNT)
                waiting.clear()
        if waiting:
            writer.write_table(pa.concat_tables(waiting), row_group_size=GROUP_ROWS_COUNT)
    return rows_count


def _sync(folder: Path) -> None:
    """Sync the folder, so that the new name is also on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
