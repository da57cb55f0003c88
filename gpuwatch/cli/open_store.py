"""The store for commands that read: the named one, else the running daemon's, else the default one."""

from __future__ import annotations

import contextlib
import os
import shlex
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
_LABELS_COUNT = 200  # latest windows in which a label like the given one is looked for
_SCENES_COUNT = 8  # stores of simulated GPUs in which a label is looked for


def folder(settings: Settings) -> Path:
    """Return the state folder; a running daemon's folder, and for real GPUs the system daemon's, replace the default one."""
    if settings.origin("state") != "default":
        return settings.state
    from gpuwatch.client.connection import connect

    try:
        with connect(settings, start=False) as client:
            return Path(client.welcome.state)
    except DaemonError:
        if settings.simulated:
            return settings.state
        system = SYSTEM_STATE / DATABASE
        return SYSTEM_STATE if not (settings.state / DATABASE).exists() and os.access(system, os.R_OK) else settings.state


def closed(where: Path) -> str | None:
    """Return the reason and remedy if this user may not read a store, else None."""
    if not where.is_dir() or os.access(where, os.R_OK | os.X_OK):
        return None
    try:
        group = where.group()
    except KeyError:
        group = str(where.stat().st_gid)
    return f"{where}: only members of the group {group} may read it; run: sudo usermod -aG {group} $USER, and log in again"


def readable_folder(settings: Settings) -> Path:
    """Return the state folder.

    Raises StoreError: when this user may not read it.
    """
    where = folder(settings)
    if why := closed(where):
        raise StoreError(why)
    return where


def reader(settings: Settings) -> Reader:
    """Open the store for reading.

    Raises StoreError: when there is no readable store, with the remedy.
    """
    from gpuwatch.store import Reader

    where = readable_folder(settings)
    if not (where / DATABASE).is_file():  # opening a pipe of this name would block
        remedy = hint_at_simulated(settings) or "; the first window creates one, or name another with --state"
        raise StoreError(f"{where}: expected a store, found none{remedy}")
    return Reader(where)


def name_left_out(store: Reader) -> None:
    """Print to standard error the windows that are missing in a list, with the reasons."""
    lines = list(store.left_out.values())
    for line in lines[:_DECLARED_COUNT]:
        output.say(f"gpuwatch: {plain(line)}; left out")
    if len(lines) > _DECLARED_COUNT:
        output.say(f"gpuwatch: {len(lines) - _DECLARED_COUNT} more windows cannot be read and are left out")


def _hint_at_label(store: Reader, name: str) -> str:
    """Return the label of a late window that is like ``name``; empty without one."""
    import difflib

    labels = [each.label for each in store.runs(limit=_LABELS_COUNT) if each.label]
    return "".join(f"; did you mean {near!r}?" for near in difflib.get_close_matches(name, labels, n=1))


def hint_at_simulated(settings: Settings, label: str | None = None) -> str:
    """Return the option for the latest store of simulated GPUs, if possible with this label; empty without such a store."""
    from gpuwatch.store import Reader

    others = () if settings.simulated else settings.state.parent.glob(f"{settings.state.name}-simulated-*/{DATABASE}")
    sources: dict[bool, str] = {}  # by whether the store holds the label; the latest store first
    for database in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[:_SCENES_COUNT]:
        with contextlib.suppress(StoreError), Reader(database.parent) as store:
            source = next((run.source for run in store.runs(limit=1)), "simulated:…")
            sources.setdefault(label is not None and bool(store.runs(label=label, limit=1)), source)
    found = sources.get(True, sources.get(False))
    return f"; for windows of simulated GPUs, give {shlex.quote(f'--source={found}')}" if found is not None else ""


def run(store: Reader, name: str | None, *, back: int = 1) -> Run:
    """Return the run with this id, unique start of an id, or label (the latest); without a name the ``back``-th from the end.

    Raises StoreError: when no run or several match, when the store has no window, and when the run cannot be read.
    """
    settings = options.settings()
    if name is not None:
        name = clean_text(name)  # an argument may be any bytes
        try:
            return store.run(name)
        except StoreError as error:
            if labelled := store.runs(label=name, limit=1):
                return labelled[0]
            if not (why := str(error)).startswith("run"):  # about a damaged file
                raise
            if "found none" in why:
                why = f"RUN: expected an id, the start of an id, or a label of a window in {store.state}, found {name!r}"
                why += _hint_at_label(store, name)
            listing = f"; list the windows with: gpuwatch audit{options.repeated(settings)}"
            raise StoreError(f"{why}{hint_at_simulated(settings, name) or listing}") from error
    latest = store.runs(limit=back)
    if len(latest) < back:
        if store.left_out:
            raise StoreError(next(iter(store.left_out.values())))
        if latest:
            last = f"-1 to -{len(latest)}" if len(latest) > 1 else "-1"
            raise StoreError(f"-{back}: expected {last}, as the store holds {output.counted(len(latest), 'window')}")
        raise StoreError(
            f"expected a window in the store, found none; create one with: gpuwatch run{options.repeated(settings)} -- COMMAND"
        )
    return latest[-1]
