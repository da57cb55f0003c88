"""Checks of configuration, store, socket, and the running daemon."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from gpuwatch.cli import open_store
from gpuwatch.cli.checks import Check, failed, passed, warned
from gpuwatch.client.connection import connect
from gpuwatch.config import quantities
from gpuwatch.config import settings as config
from gpuwatch.config.settings import Settings
from gpuwatch.daemon.handover import stop_command
from gpuwatch.errors import DaemonError, StoreError, UsageError
from gpuwatch.store import SQLITE_VERSION, Reader
from gpuwatch.store.files import NETWORK_TYPES, file_system

_ROOM_BYTES = 256 << 20


def checks(settings: Settings) -> Iterator[Check]:
    read = config.files(settings.given, os.environ)
    yield passed(
        "configuration", ", ".join(map(str, read)) or "no file: defaults are in force", files=[str(file) for file in read]
    )
    yield from _store(open_store.folder(settings), settings)
    yield _socket(settings)
    yield _daemon(settings)


def _store(folder: Path, settings: Settings) -> Iterator[Check]:
    if why := open_store.closed(folder):
        found, _, fix = why.partition("; ")
        yield warned("store", found, fix, path=str(folder))
        return
    there = next(path for path in (folder, *folder.parents) if path.exists())
    usage = psutil.disk_usage(str(there))
    kind = file_system(there)
    facts = {"path": str(folder), "free_bytes": usage.free, "file_system": kind, "budget_bytes": settings.store_budget_bytes}
    is_writable = usage.total > 0 and os.access(there, os.W_OK | os.X_OK)  # /proc and /sys have no room, but root may write
    if not is_writable and not (folder / open_store.DATABASE).exists():
        another = "choose another folder with --state, or GPUWATCH_STATE"
        fix = another if there.stat().st_uid == os.getuid() else f"chown it to {os.getuid()}, or {another}"
        yield failed("store", f"{there} cannot be written", fix, **facts)
    elif kind in NETWORK_TYPES:
        fix = "choose a local folder with --state, or GPUWATCH_STATE"
        yield warned("store", f"{folder} is on a network file system ({kind})", fix, **facts)
    elif usage.free < max(_ROOM_BYTES, min(settings.store_budget_bytes, 1 << 30)):
        found = f"{folder} has {_large(usage.free)} left, and may take {quantities.size_text(settings.store_budget_bytes)}"
        yield warned(
            "store", found, "make room, or lower store.budget: the oldest readings are dropped when the disk is full", **facts
        )
    else:
        yield passed("store", f"{folder} ({kind or 'unknown file system'}, {_large(usage.free)} free)", **facts)
    yield from _database(folder)


def _database(folder: Path) -> Iterator[Check]:
    version = tuple(int(part) for part in SQLITE_VERSION.split("."))
    # Two connections that write or checkpoint at once may corrupt the database (https://www.sqlite.org/wal.html).  Two older
    # release lines have the fix too.
    safe = version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)
    bug = "" if safe else ": has the WAL-reset bug of versions before 3.51.3, which one writing connection avoids"
    yield passed("sqlite", f"{SQLITE_VERSION}{bug}", version=SQLITE_VERSION, wal_reset_bug=not safe)
    file = folder / open_store.DATABASE
    if not file.exists():
        yield passed("windows", "none yet: the first window creates the store", windows_count=0)
        return
    try:
        with Reader(folder) as store:
            latest = store.runs(limit=1)
    except StoreError as error:
        yield failed("windows", str(error), "start the daemon again, which replaces a damaged store, or move the folder away")
        return
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    yield passed(
        "windows",
        f"{_large(size)} stored, the last window is {latest[0].id}" if latest else f"{_large(size)} stored",
        size_bytes=size,
    )


def _large(size_bytes: int) -> str:
    amount, unit = float(size_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{amount:.3g} {unit}"


def _socket(settings: Settings) -> Check:
    folder = settings.socket.parent
    if not folder.exists():
        return passed("socket", f"{settings.socket} (the first window creates its folder)", path=str(settings.socket))
    try:
        config.ensure_socket_folder(settings.socket)
    except UsageError as error:
        found, _, fix = str(error).partition("; ")
        return failed("socket", found, fix)
    return passed("socket", str(settings.socket), path=str(settings.socket))


def _daemon(settings: Settings) -> Check:
    try:
        with connect(settings, start=False) as client:
            facts = client.status()
    except DaemonError as error:
        if error.code == "unreachable":
            return passed("daemon", "none is running; the first window starts one, which exits when idle", running=False)
        return failed(
            "daemon",
            str(error),
            f"stop it with: {stop_command(settings.socket)}, or name the same --source and --state",
            running=True,
        )
    return _running(facts)


def _running(facts: dict[str, Any]) -> Check:
    found = (
        f"{facts.get('version')}, pid {facts.get('pid')}, up {float(facts.get('uptime_s') or 0):.0f} s, {facts.get('source')}"
    )
    gpus = facts.get("gpus") or []
    lost = [str(gpu.get("uuid"))[:12] for gpu in gpus if gpu.get("lost")]
    late_us = [gpu["lateness_p99_ns"] / 1e3 for gpu in gpus if gpu.get("lateness_p99_ns") is not None]
    if late_us:
        found += f", readings at most {max(late_us):.0f} µs late in 99 of 100"
    if facts.get("absence"):
        return warned("daemon", f"{found}: {facts['absence']}", "see driver above; the daemon tries again every 10 s", **facts)
    if lost:
        rest = "the other GPUs are watched" if len(lost) < len(gpus) else "no GPU is watched until the driver is back"
        return warned("daemon", f"{found}; lost: {', '.join(lost)}", f"dmesg may name the cause; {rest}", **facts)
    return passed("daemon", found, **facts)
