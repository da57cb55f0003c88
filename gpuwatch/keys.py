"""The closed list of settings: the name of each in files and in the environment, its unit, default and meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuwatch import places, quantities
from gpuwatch.quantities import QuantityError

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Key:
    """One setting.  ``read`` takes what a file holds (or text) and raises QuantityError; ``write`` gives the text back."""

    name: str  # as in the file, with its table: "sampling.idle_period"
    field: str  # of Settings
    default: Any  # the field's type; None where it follows from the source
    read: Callable[[object], Any]
    write: Callable[[Any], str]
    meaning: str

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return "GPUWATCH_" + self.name.replace(".", "_").upper()


def _text(expected: str, found: object) -> str:
    if not isinstance(found, str):
        raise QuantityError(f"expected {expected}, found {found!r}")
    return found


def _source(found: object) -> str:
    expected = "auto, nvml, simulated, simulated:SCENE[,SCENE…] or replay:PATH"
    text = _text(expected, found)
    kind, colon, argument = text.partition(":")
    if kind not in places.KINDS:
        import difflib

        near = difflib.get_close_matches(kind, places.KINDS, n=1)
        raise QuantityError(f"expected {expected}, found {text!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    if (colon and not argument) or (colon and kind in ("auto", "nvml")) or (kind == "replay" and not argument):
        raise QuantityError(f"expected {expected}, found {text!r}")
    # A daemon starts in another working folder, so a recording is named absolutely.
    return f"replay:{Path(argument).expanduser().absolute()}" if kind == "replay" else text


def _path(found: object) -> Path:
    text = _text("a path", found)
    if not text or "\0" in text:
        raise QuantityError(f"expected a path, found {text!r}")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise QuantityError(f"expected a path, found {text!r}: no such user") from None


def _socket(found: object) -> Path:
    path = _path(found)
    size = len(str(path).encode())
    if size > places.SOCKET_PATH_BYTES:
        raise QuantityError(f"expected a path of at most {places.SOCKET_PATH_BYTES} bytes, found {size}: {path}")
    return path


def _period(found: object) -> int:
    period_ns = quantities.duration_ns(_text('a duration with its unit, as "50ms"', found))
    if not 1_000_000 <= period_ns <= 10_000_000_000:
        raise QuantityError(f"expected a period of 1ms to 10s, found {found!r}")
    return period_ns


def _seconds(found: object) -> float:
    return quantities.duration_ns(_text('a duration with its unit, as "60s" or "30d"', found)) / 1e9


def _share(found: object) -> float:
    ratio = quantities.share_ratio(_text('a share with its sign, as "1 %"', found))
    if not 0 < ratio <= 1:
        raise QuantityError(f"expected more than 0 %, found {found!r}")
    return ratio


def _bytes(found: object) -> int:
    size = quantities.size_bytes(_text('a size with its unit, as "2GiB"', found))
    if size < 1 << 20:
        raise QuantityError(f"expected at least 1MiB, found {found!r}")
    return size


def _log_level(found: object) -> str:
    if found not in LOG_LEVELS:
        raise QuantityError(f"expected one of {', '.join(LOG_LEVELS)}, found {found!r}")
    return str(found)


def _seconds_text(amount_s: float) -> str:
    return quantities.duration_text(round(amount_s * 1e9))


KEYS: tuple[Key, ...] = (
    Key("source", "source", "auto", _source, str, "where readings come from"),
    Key("state", "state", None, _path, str, "the folder of the store and the daemon's log"),
    Key("socket", "socket", None, _socket, str, "where the daemon listens for windows"),
    Key("log_level", "log_level", "info", _log_level, str, "the least severe message the daemon logs"),
    Key("sampling.idle_period", "idle_period_ns", 50_000_000, _period, quantities.duration_text,
        "how often the fast lane is read while no window is open"),
    Key("sampling.active_period", "active_period_ns", 10_000_000, _period, quantities.duration_text,
        "how often the fast lane is read while a window is open"),
    Key("sampling.budget", "budget_ratio", 0.01, _share, quantities.share_text,
        "the share of one processor core that watching one GPU may take"),
    Key("store.budget", "store_budget_bytes", 2 << 30, _bytes, quantities.size_text,
        "how much room raw readings may take before the oldest segment is dropped"),
    Key("store.max_age", "store_max_age_s", 30 * 86400.0, _seconds, _seconds_text,
        "how old raw readings may become; windows and verdicts are kept"),
    Key("store.segment", "segment_bytes", 64 << 20, _bytes, quantities.size_text, "the size at which a new segment is begun"),
    Key("daemon.idle_exit", "idle_exit_s", 60.0, _seconds, _seconds_text,
        "how long a daemon that was started on demand stays after its last client"),
)  # fmt: skip

BY_NAME: Mapping[str, Key] = {key.name: key for key in KEYS}
