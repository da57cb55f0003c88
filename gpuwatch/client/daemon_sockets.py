"""The sockets at which a daemon may listen for a client with given settings."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

from gpuwatch.config.settings import SYSTEM_SOCKET, Settings
from gpuwatch.wire import peer, store_owner


def list_sockets(settings: Settings) -> Iterator[Path]:
    """Yield every socket in the order to try: the system daemon's under default settings, then the user's."""
    if settings.origin("socket") == "default" and settings.origin("state") == "default" and settings.source == "auto":
        yield SYSTEM_SOCKET
    yield from list_user_sockets(settings)


def list_user_sockets(settings: Settings) -> Iterator[Path]:
    """Yield where the user's daemon may listen: the socket of the settings, else the one that the owner of the store recorded."""
    yield settings.socket
    recorded = store_owner.recorded_socket(settings.state) if settings.origin("socket") == "default" else None
    if recorded is not None and recorded != settings.socket:
        yield recorded


def dial_user_daemon(settings: Settings) -> socket.socket | None:
    """Connect to the user's daemon; None where none listens.  Raises DaemonError: as ``peer.dial``."""
    return next((found for path in list_user_sockets(settings) if (found := peer.dial(path)) is not None), None)
