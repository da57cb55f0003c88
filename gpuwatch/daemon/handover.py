"""Requests to a running daemon to exit: from `gpuwatch daemon stop`, or from a new daemon that a person or service starts."""

import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpuwatch import clock
from gpuwatch.client.connection import Client, connect_at
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DaemonError, UsageError
from gpuwatch.wire import store_owner

WAIT_S = 30.0  # the longest wait for the old daemon's open windows
GONE_S = 31.0  # longer than the time after which an exiting daemon kills itself (``process.END_S``)
_AGAIN_S = 0.1


def stop_command(socket: Path | str) -> str:
    """Return the command that stops the daemon at a socket."""
    return f"gpuwatch {shlex.quote(f'--socket={socket}')} daemon stop"


def started_by(facts: dict[str, Any]) -> str:
    """Return ``window``, ``person`` or ``service``: a daemon's starter, from its status.  Older daemons report no service."""
    return str(facts.get("started_by") or ("window" if facts.get("on_demand") else "person"))


def ask_to_leave(client: Client, *, wait_s: float, now: bool = False, tell: Callable[[str], object] | None = None) -> None:
    """Request a daemon's exit, and repeat the request for at most ``wait_s`` while windows or a new client prevent the exit.

    ``now`` ends open windows as unproven.  ``tell`` receives the reason for waiting for windows, once.
    Raises DaemonError: when the daemon refuses or is silent; code ``windows-open`` means windows open or being judged.
    """
    until_ns, pause, has_told = clock.now_ns() + round(wait_s * 1e9), threading.Event(), False
    while True:
        try:
            client.leave(now=now)
        except DaemonError as error:
            if error.code == "gone":
                return
            if error.code == "unknown-message":
                pid = client.welcome.pid
                why = f"expected a daemon that exits on request, found version {client.welcome.version}; run: kill {pid}"
                raise DaemonError(why, error.code) from error
            if error.code not in ("windows-open", "client-came") or clock.now_ns() > until_ns:
                raise
            if error.code == "windows-open" and tell is not None and not has_told:
                tell(f"{error}; waiting {wait_s:g} s at most")
                has_told = True
        else:
            return
        pause.wait(_AGAIN_S)


def make_room(settings: Settings, tell: Callable[[str], object], *, is_handed: bool) -> None:
    """Stop the on-demand daemon at this socket or store, to make room for a daemon that a person or service starts.

    ``is_handed``: a service manager handed over the socket, so no other daemon answers there.

    Raises UsageError: when a person or a service started the old daemon, and when the old daemon refuses or does not exit.
    """
    for path in _places(settings, is_handed=is_handed):
        try:
            client = connect_at(path, settings)
            if client is None:
                continue
            with client:
                _make_room_at(path, client, tell)
        except DaemonError as error:
            if error.code in ("gone", "silent"):  # that daemon is exiting, starting or hanging: the caller waits for the lock
                continue
            raise UsageError(f"{path}: {error}; stop the daemon there with: {stop_command(path)}") from error


def _places(settings: Settings, *, is_handed: bool) -> Iterator[Path]:
    if not is_handed:
        yield settings.socket
    recorded = store_owner.recorded_socket(settings.state)
    if recorded is not None and recorded != settings.socket:
        yield recorded


def _make_room_at(path: Path, client: Client, tell: Callable[[str], object]) -> None:
    facts = client.status()
    pid, who = facts.get("pid"), started_by(facts)
    if who != "window":
        raise UsageError(
            f"{path}: expected a free socket, found the daemon of pid {pid}, started by a {who}; use it, stop it with:"
            f" {stop_command(path)}, or choose another --socket and --state"
        )
    tell(f"taking over from the daemon that a window started (pid {pid}, {path})")
    try:
        ask_to_leave(client, wait_s=WAIT_S, tell=tell)
    except DaemonError as error:
        if error.code not in ("windows-open", "client-came"):
            raise
        raise UsageError(
            f"{path}: expected the daemon of pid {pid} to exit within {WAIT_S:g} s, found that {error};"
            f" try again after these windows, or end them as unproven with: {stop_command(path)} --now"
        ) from error
    wait_until_gone(client)


def wait_until_gone(client: Client) -> None:
    """Wait until an exiting daemon has released its store.

    Raises DaemonError: when the daemon does not exit in time.
    """
    state, pid = Path(client.welcome.state), client.welcome.pid
    until_ns, pause = clock.now_ns() + round(GONE_S * 1e9), threading.Event()
    while store_owner.is_alive(state):
        if clock.now_ns() > until_ns:
            raise DaemonError(f"expected the daemon of pid {pid} to exit within {GONE_S:g} s; run: kill -9 {pid}", "stays")
        pause.wait(_AGAIN_S / 5)
