"""The store a reading command reads: the running daemon's, else the one of the settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from annotate.output.report import plain
from gpuwatch.cli import options, output
from gpuwatch.config.settings import SYSTEM_STATE, Settings
from gpuwatch.errors import DaemonError, StoreError
from gpuwatch.utf8 import clean_text

if TYPE_CHECKING:
    from gpuwatch.store import Reader, Run

DATABASE = "gpuwatch.db"
_DECLARED_COUNT = 5


def folder(settings: Settings) -> Path:
    """Return the state folder; the system daemon's replaces a default one."""
    if settings.origin("state") != "default" or settings.simulated:
        return settings.state
    from gpuwatch.client.connection import connect

    try:
        with connect(settings, start=False) as client:
            return Path(client.welcome.state)
    except DaemonError:
        system = SYSTEM_STATE / DATABASE
        return SYSTEM_STATE if not (settings.state / DATABASE).exists() and os.access(system, os.R_OK) else settings.state


def closed(where: Path) -> str | None:
    """Return why this user may not read a store, and the remedy: the system daemon's store belongs to its group."""
    if not where.is_dir() or os.access(where, os.R_OK | os.X_OK):
        return None
    try:
        group = where.group()
    except KeyError:
        group = str(where.stat().st_gid)
    return f"{where}: only members of the group {group} may read it; run: sudo usermod -aG {group} $USER, and log in again"


def readable_folder(settings: Settings) -> Path:
    """Return the state folder.  Raises StoreError: when this user may not read it."""
    where = folder(settings)
    if why := closed(where):
        raise StoreError(why)
    return where


def reader(settings: Settings) -> Reader:
    """Open the store for reading.  Raises StoreError: when there is no store yet, with the remedy."""
    from gpuwatch.store import Reader

    where = readable_folder(settings)
    if not (where / DATABASE).is_file():  # opening a pipe in its place would block
        raise StoreError(f"{where}: expected a store, found none; the first window creates one, or name another with --state")
    return Reader(where)


def name_left_out(store: Reader) -> None:
    """Name on standard error the windows that a list had to leave out."""
    lines = list(store.left_out.values())
    for line in lines[:_DECLARED_COUNT]:
        output.say(f"gpuwatch: {plain(line)}; it is left out")
    if len(lines) > _DECLARED_COUNT:
        output.say(f"gpuwatch: {len(lines) - _DECLARED_COUNT} more windows cannot be read and are left out")


def _instead() -> str:
    """Return the other places of a window that this store lacks."""
    settings = options.settings()
    others = () if settings.simulated else settings.state.parent.glob(f"{settings.state.name}-simulated-*")
    return "; windows of simulated GPUs are kept apart: name their --source" if any(others) else ""


def run(store: Reader, name: str | None, *, back: int = 1) -> Run:
    """Find a run by its id or a unique beginning of it, or the latest of a label; without a name the ``back``-th from the last.

    Raises StoreError.
    """
    if name is not None:
        name = clean_text(name)  # an argument may be any bytes
        try:
            return store.run(name)
        except StoreError as error:
            if labelled := store.runs(label=name, limit=1):
                return labelled[0]
            raise StoreError(f"{error}{_instead()}") from error
    latest = store.runs(limit=back)
    if len(latest) < back:
        if store.left_out:
            raise StoreError(next(iter(store.left_out.values())))
        if latest:
            raise StoreError(f"expected at least {back} windows in the store, found {len(latest)}")
        raise StoreError("expected a window in the store, found none yet; try: gpuwatch run -- COMMAND")
    return latest[-1]
