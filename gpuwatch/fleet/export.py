"""The export of windows that a folder lacks: find the windows, make rows, write parts.

The parts in the folder list the exported windows, so the next export completes an interrupted one.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from annotate.capsule.pack import unpack
from annotate.errors import CapsuleError
from annotate.evidence import Device, Evidence
from gpuwatch.errors import ExportError, StoreError
from gpuwatch.fleet.columns import SCHEMA
from gpuwatch.fleet.rows import Row, hostname, partition, rows
from gpuwatch.store import Reader, Run

_CHUNK = 500  # runs in memory at a time


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of one export: new parts, counts of new windows and rows, and count of windows exported before."""

    parts: tuple[Path, ...] = ()
    windows_count: int = 0
    rows_count: int = 0
    there_count: int = 0


def to_parquet(store: Reader, folder: Path, *, since_wall_s: float | None = None, host: str | None = None) -> Exported:
    """Add finished windows that the folder lacks, one part per day and machine.

    Raises ExportError: when another export runs, or a part cannot be read or written.
    Raises StoreError: when the store cannot be read.
    Raises UsageError: without pyarrow.
    """
    from gpuwatch.fleet import parquet

    parts: list[Path] = []
    windows_count = rows_count = there_count = 0
    with _alone(store.state):
        for where, (name, ids) in _by_partition(store, since_wall_s, host).items():
            target = folder / "windows" / f"schema={SCHEMA}" / where
            there = parquet.run_ids(target)
            new = [run_id for run_id in ids if run_id not in there]
            there_count += len(ids) - len(new)
            if not new:
                continue
            path, written_count = parquet.write_part(target, new, _chunks(store, new, name))
            parts.append(path)
            windows_count += len(new)
            rows_count += written_count
    return Exported(tuple(parts), windows_count, rows_count, there_count)


def all_rows(store: Reader, *, since_wall_s: float | None = None, host: str | None = None) -> Iterator[Row]:
    """Yield the rows of every finished window, in order of the days.

    Raises StoreError: when the store cannot be read.
    """
    for name, ids in _by_partition(store, since_wall_s, host).values():
        for chunk in _chunks(store, ids, name):
            yield from chunk


def _by_partition(store: Reader, since_wall_s: float | None, host: str | None) -> dict[str, tuple[str, list[str]]]:
    """Return machine name and run ids by partition, oldest first."""
    out: dict[str, tuple[str, list[str]]] = {}
    for each in store.ended(since_wall_s=since_wall_s):
        name = hostname(each.boot_id, each.hostname, host)
        out.setdefault(partition(each.begun_wall_s, name), (name, []))[1].append(each.id)
    return out


def _chunks(store: Reader, ids: Sequence[str], host: str) -> Iterator[list[Row]]:
    for i in range(0, len(ids), _CHUNK):
        yield [
            row
            for run in store.named(ids[i : i + _CHUNK])
            for row in rows(
                run,
                {uuid: _device(store, run, uuid) for uuid in run.uuids},
                host,
                {uuid: _evidence(store, run, uuid) for uuid in run.uuids},
            )
        ]


def _device(store: Reader, run: Run, uuid: str) -> Device | None:
    try:
        return store.device(uuid, boot_id=run.boot_id, at_ns=run.begin_ns)
    except StoreError:  # the store has no facts of this GPU
        return None


def _evidence(store: Reader, run: Run, uuid: str) -> Evidence | None:
    """Return a run's evidence of a GPU; None for dropped or damaged evidence, so that the row has no physics."""
    packed = store.packed(run, uuid)
    try:
        return unpack(packed)[0] if packed is not None else None
    except (CapsuleError, IndexError):
        return None


@contextlib.contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Hold a store's export lock, because two parallel exports would export the same windows.  Raises ExportError."""
    held = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ExportError(
                f"{state}: another export of this store is running; retry when the other export has ended"
            ) from error
        except OSError:
            pass  # a file system without locks: the user must not run exports in parallel
        yield
    finally:
        os.close(held)
