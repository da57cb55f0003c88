"""The result of compiling one side, and a least-recently-used cache of results in the state folder, one file each."""

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from gpuwatch import atomic_write

FOLDER = "diff-cache"
MOST_BYTES = 64 * 1024 * 1024  # enough for some hundred kernels
_FORM = b"2"  # version of the file format, a part of each key


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """Compiled code of one side; ``debug`` is a cubin with debug information, which names the parameters."""

    compiler: str
    flags: tuple[str, ...] = ()
    cubin: bytes = b""
    ptx: str = ""
    log: str = ""
    debug: bytes = b""
    dynamic_shared_bytes: int = 0
    parameters: tuple[tuple[str, str], ...] = ()  # names and types, for Triton only


class CompileCache:
    """Compiled code by key (``digest``).  Nothing is cached if the folder cannot be written."""

    def __init__(self, state: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = state / FOLDER
        self._most_bytes = most_bytes

    def read(self, key: str) -> Compiled | None:
        """Return the code stored under a key; None without a usable file."""
        path = self._folder / key
        with suppress(OSError, msgspec.MsgspecError):
            found = msgspec.msgpack.decode(path.read_bytes(), type=Compiled)
            os.utime(path)
            return found
        return None

    def store(self, key: str, compiled: Compiled) -> None:
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_write.replace(self._folder / key, msgspec.msgpack.encode(compiled))
            self._shrink()

    def _shrink(self) -> None:
        files = sorted(((each.stat(), each) for each in self._folder.iterdir()), key=lambda pair: -pair[0].st_mtime_ns)
        room = self._most_bytes
        for status, path in files:
            room -= status.st_size
            if room < 0:
                path.unlink(missing_ok=True)


def digest(parts: Iterable[bytes]) -> str:
    """Return the key of a compilation.  Each part is hashed with its length, so that shifted boundaries change the key."""
    return hashlib.sha256(msgspec.msgpack.encode([_FORM, *parts])).hexdigest()
