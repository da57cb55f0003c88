"""Default paths of store, socket and configuration files, as a function of user and source, and checks of the folders.

platformdirs is not used, because importing it would slow ``import gpuwatch`` down.
"""

import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path

from gpuwatch.errors import UsageError

SYSTEM_STATE = Path("/var/lib/gpuwatch")
SYSTEM_SOCKET = Path("/run/gpuwatch/daemon.sock")
SYSTEM_CONFIG = Path("/etc/gpuwatch/config.toml")
SOCKET_PATH_BYTES = 107  # sun_path of unix(7), without its terminating zero

KINDS = ("auto", "nvml", "simulated", "replay")


def suffix(source: str) -> str:
    """Return the suffix of a simulated or replayed source's store and socket; empty for a real source.

    The same specification gives the same suffix everywhere, so that client and daemon find each other.
    """
    kind, _, argument = source.partition(":")
    if kind in ("auto", "nvml"):
        return ""
    import hashlib  # imported late: OpenSSL's library takes a tenth of the import of gpuwatch

    return f"-{kind}" + (f"-{hashlib.blake2b(argument.encode(), digest_size=4).hexdigest()}" if argument else "")


def default_state(source: str, environment: Mapping[str, str]) -> Path:
    """Return the user's store: ``$XDG_STATE_HOME/gpuwatch``, by default under ``~/.local/state``."""
    return user_folder(environment, "XDG_STATE_HOME", ".local/state") / f"gpuwatch{suffix(source)}"


def default_socket(source: str, environment: Mapping[str, str]) -> Path:
    """Return the user's socket: in ``$XDG_RUNTIME_DIR/gpuwatch``, else in a private folder under the temporary folder."""
    name = f"daemon{suffix(source)}.sock"
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and _is_ours(Path(runtime)):
        path = Path(runtime) / "gpuwatch" / name
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
            return path
    path = _private_folder(environment) / name
    return path if len(os.fsencode(path)) <= SOCKET_PATH_BYTES else _private_folder({}) / name


def user_config(environment: Mapping[str, str]) -> Path:
    return user_folder(environment, "XDG_CONFIG_HOME", ".config") / "gpuwatch" / "config.toml"


def ensure_socket_folder(socket: Path) -> None:
    """Make the folder of a socket (mode 0700), or check an existing one.

    In a folder with other writers, another user could replace the socket.

    Raises UsageError: when the folder cannot be made, or another user could change it.
    """
    _ensure_ours(socket.parent, "--socket")


def ensure_state_folder(state: Path, *, mode: int = 0o700) -> None:
    """Make the folder of the store; first check a folder under the temporary folder, because another user may have made it.

    Raises UsageError: when the folder cannot be made, or another user could change the temporary one.
    """
    if state.parent.name == _private_folder({}).name:
        _ensure_ours(state.parent, "--state")
    try:
        state.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{state}: expected a folder, or a place to make one, found: {error.strerror}; choose another with --state"
        ) from error


def _ensure_ours(folder: Path, option: str) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise UsageError(
            f"{folder}: expected a folder of yours, found: {error.strerror}; choose another with {option}"
        ) from error
    _check_ours(folder, found, option)


def is_folder_of_ours(folder: Path) -> bool:
    """Return True if a folder exists, and no user but this one and root could replace files in it."""
    try:
        _check_ours(folder, folder.lstat(), "--socket")
    except (OSError, UsageError):
        return False
    return True


def _check_ours(folder: Path, found: os.stat_result, option: str) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise UsageError(
            f"{folder}: expected a folder of yours, found a symbolic link; remove it or choose another with {option}"
        )
    if found.st_uid not in (os.getuid(), 0):
        raise UsageError(
            f"{folder}: expected a folder of uid {os.getuid()}, found one of uid {found.st_uid}; choose another with {option}"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise UsageError(f"{folder}: expected a folder only you can write to, found mode {mode:04o}; run: chmod 700 {folder}")


def user_folder(environment: Mapping[str, str], variable: str, below: str) -> Path:
    """Return the folder in a variable, else one below the user's home, else a private one; ignore a HOME that is not absolute."""
    # The XDG base-directory specification requires that relative paths in these variables are ignored.
    named = environment.get(variable, "")
    if named.startswith("/"):
        return Path(named)
    home = environment.get("HOME", "")
    if home.startswith("/"):
        return Path(home) / below
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container's arbitrary uid has neither HOME nor an entry in the password file
        home = ""
    return Path(home) / below if home.startswith("/") else _private_folder(environment)


def _private_folder(environment: Mapping[str, str]) -> Path:
    temporary = environment.get("TMPDIR", "")
    return Path(temporary if temporary.startswith("/") else "/tmp") / f"gpuwatch-{os.getuid()}"  # noqa: S108 - checked when used


def _is_ours(folder: Path) -> bool:
    """Return True if this user owns a folder and can write there: sudo and containers pass on other users' variables."""
    try:
        return folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        return False
