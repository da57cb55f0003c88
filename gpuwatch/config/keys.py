"""The closed list of settings: name in files and environment, unit, default and meaning of each."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotate.ranges import CARD_SPREADS, PRECISIONS, TOLERANCES, Range
from annotate.times.reference_clock import ReferenceClock
from gpuwatch.config import paths, quantities
from gpuwatch.config.quantities import QuantityError
from gpuwatch.utf8 import found_words

_PREFIX = "GPUWATCH_"  # of the environment variables of settings
LOG_LEVELS = ("debug", "info", "warning", "error")
_DIGITS_COUNT = 9  # Python converts no text of more than 4300 digits
LOOPBACK, LISTEN_PORT = "127.0.0.1", 9836


@dataclass(frozen=True, slots=True)
class Key:
    """One setting.  ``read`` takes a file's value or text and raises QuantityError; ``write`` returns the text."""

    name: str  # as in the file, with its table: "sampling.idle_period"
    field: str  # of Settings
    default: Any  # the field's type; None if the source determines the value
    read: Callable[[object], Any]
    write: Callable[[Any], str]
    meaning: str

    @property
    def variable(self) -> str:
        """Return the name of the setting's environment variable."""
        return _PREFIX + self.name.replace(".", "_").upper()


def _text(expected: str, found: object) -> str:
    if not isinstance(found, str):
        raise QuantityError(f"expected {expected}, found {found!r}")
    return found


def _source(found: object) -> str:
    expected = "auto, nvml, simulated, simulated:SCENE[,SCENE…] or replay:PATH"
    text = _text(expected, found)
    kind, colon, argument = text.partition(":")
    if kind not in paths.KINDS:
        import difflib

        near = difflib.get_close_matches(kind, paths.KINDS, n=1)
        raise QuantityError(f"expected {expected}, found {text!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    if (colon and not argument) or (colon and kind in ("auto", "nvml")) or (kind == "replay" and not argument):
        raise QuantityError(f"expected {expected}, found {text!r}")
    # A daemon starts in another working folder, so a recording is named absolutely.
    return f"replay:{path_of(argument)}" if kind == "replay" else text


def path_of(found: object) -> Path:
    """Return an absolute path.  Raises QuantityError: for an empty path, a null character, or an unknown user after ``~``."""
    text = _text("a path", found)
    if not text or "\0" in text:
        raise QuantityError(f"expected a path, found {text!r}")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise QuantityError(f"expected a path, found {text!r}: no such user") from None


def _socket(found: object) -> Path:
    path = path_of(found)
    size = len(os.fsencode(path))
    if size > paths.SOCKET_PATH_BYTES:
        raise QuantityError(f"expected a path of at most {paths.SOCKET_PATH_BYTES} bytes, found {size}: {str(path)!r}")
    return path


def _period(found: object) -> int:
    period_ns = quantities.duration_ns(_text('a duration with its unit, such as "50ms"', found))
    if not 1_000_000 <= period_ns <= 10_000_000_000:
        raise QuantityError(f"expected a period of 1ms to 10s, found {found!r}")
    return period_ns


def _seconds(found: object) -> float:
    return quantities.duration_ns(_text('a duration with its unit, such as "60s" or "30d"', found)) / 1e9


def _share(found: object) -> float:
    ratio = quantities.share_ratio(_text('a share with its sign, such as "1 %"', found))
    if not 0 < ratio <= 1:
        raise QuantityError(f"expected more than 0 %, found {found!r}")
    return ratio


def _threshold(range_: Range) -> Callable[[object], float]:
    def read(found: object) -> float:
        ratio = quantities.share_ratio(_text('a share with its sign, such as "0.5 %"', found)) if found != "none" else 0.0
        if ratio and not range_.holds(ratio):
            least, most = quantities.share_text(range_.least), quantities.share_text(range_.most)
            raise QuantityError(f"expected {least} to {most}, found {found!r}")
        return ratio

    return read


def _threshold_text(ratio: float) -> str:
    return quantities.share_text(ratio) if ratio else "none"


def _reference_clock(found: object) -> ReferenceClock:
    return 0.0 if found == "none" else quantities.reference_clock(_text('a clock such as "1410 MHz"', found))


def _bytes(found: object) -> int:
    size = quantities.size_bytes(_text('a size with its unit, such as "2GiB"', found))
    if size < 1 << 20:
        raise QuantityError(f"expected at least 1MiB, found {found!r}")
    return size


def _listen(found: object) -> str:
    expected = 'HOST:PORT, HOST, PORT (on loopback) or "off"'
    text = _text(expected, found)
    if text in ("off", ""):
        return ""
    host, colon, port = text.rpartition(":")
    if text.isdigit():
        host, port = LOOPBACK, text
    elif not colon or text.endswith("]"):
        host, port = text, str(LISTEN_PORT)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    # An IPv6 address contains colons and must be in brackets; an empty host would mean every address by accident.
    if not bare or (":" in host and bare == host) or any(letter.isspace() for letter in host):
        raise QuantityError(f"expected {expected}, found {text!r}")
    if not port.isascii() or not port.isdigit() or len(port) > _DIGITS_COUNT or int(port) > 65_535:
        raise QuantityError(f"expected a port of 0 to 65535, found {found_words(port)}")
    return f"{host}:{int(port)}"


def _file(found: object) -> str:
    return "" if found in ("", "none") else str(path_of(found))


def _switch(found: object) -> bool:
    if isinstance(found, bool):
        return found
    words = {"yes": True, "true": True, "1": True, "on": True, "no": False, "false": False, "0": False, "off": False}
    if not isinstance(found, str) or found.lower() not in words:
        raise QuantityError(f"expected yes or no, found {found!r}")
    return words[found.lower()]


def _switch_text(on: bool) -> str:  # noqa: FBT001 - the state is the whole call
    return "yes" if on else "no"


def _few(found: object) -> int:
    is_number = isinstance(found, str) and found.isascii() and found.isdigit() and len(found) <= _DIGITS_COUNT
    number = int(found) if is_number else found  # type: ignore[call-overload]
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= 100:
        raise QuantityError(f"expected a whole number of 0 to 100, found {found_words(found)}")
    return number


def _log_level(found: object) -> str:
    if found not in LOG_LEVELS:
        raise QuantityError(f"expected one of {', '.join(LOG_LEVELS)}, found {found!r}")
    return str(found)


def _seconds_text(amount_s: float) -> str:
    return quantities.duration_text(round(amount_s * 1e9))


KEYS: tuple[Key, ...] = (
    Key("source", "source", "auto", _source, str, "source of readings"),
    Key("state", "state", None, path_of, str, "folder of the store and of the daemon's log"),
    Key("socket", "socket", None, _socket, str, "socket on which the daemon listens for windows"),
    Key("log_level", "log_level", "info", _log_level, str, "lowest severity that the daemon logs"),
    Key("listen", "listen", "", _listen, lambda address: address or "off",
        "address at which the daemon serves metrics over HTTP; a daemon started on demand serves none"),
    Key("listen_insecure", "listen_insecure", False, _switch, _switch_text,  # noqa: FBT003 - a default like the others
        "serve metrics beyond this machine without encryption or without authentication"),
    Key("tolerance", "tolerance_ratio", 0.0, _threshold(TOLERANCES), _threshold_text,
        "share by which disturbances may change a number before the window is flagged; none: the policy's own, 1 %"),
    Key("precision", "precision_ratio", 0.0, _threshold(PRECISIONS), _threshold_text,
        "share to which a number must repeat from window to window; none: not required"),
    Key("card_spread", "card_spread_ratio", 0.0, _threshold(CARD_SPREADS), _threshold_text,
        "share by which two cards of a model differ in time at one clock; none: the model's recorded spread (H200: 0.34 %)"),
    Key("reference_clock", "reference_clock_mhz", 0.0, _reference_clock,
        lambda clock: quantities.reference_clock_text(clock) if clock else "none",
        "SM clock for the time at one clock, for all models or MODEL=MHZ, …; none: the model's recorded clock (H200: 1500 MHz)"),
    Key("sampling.idle_period", "idle_period_ns", 50_000_000, _period, quantities.duration_text,
        "period of the fast lane of a busy GPU; in windows, of its signals but clock and reasons, at most 50 ms"),
    Key("sampling.active_period", "active_period_ns", 10_000_000, _period, quantities.duration_text,
        "period of clock and reasons while a window is open"),
    Key("sampling.budget", "budget_ratio", 0.01, _share, quantities.share_text,
        "share of one CPU core that reading each lane of a GPU may take"),
    Key("store.budget", "store_budget_bytes", 2 << 30, _bytes, quantities.size_text,
        "size of the store above which the oldest segment of readings is dropped"),
    Key("store.max_age", "store_max_age_s", 30 * 86400.0, _seconds, _seconds_text,
        "age at which raw readings are dropped; windows and verdicts stay"),
    Key("store.segment", "segment_bytes", 64 << 20, _bytes, quantities.size_text, "size at which a new segment begins"),
    Key("daemon.idle_exit", "idle_exit_s", 900.0, _seconds, _seconds_text,
        "time without clients after which a daemon started on demand exits"),
    Key("exporter.certificate", "exporter_certificate", "", _file, lambda path: path or "none",
        "certificate (PEM, with its chain) of the metrics page, which is then served over TLS"),
    Key("exporter.key", "exporter_key", "", _file, lambda path: path or "none", "private key of the certificate"),
    Key("exporter.client_ca", "exporter_client_ca", "", _file, lambda path: path or "none",
        "authorities (PEM) that sign the certificates of clients that may read the page"),
    Key("exporter.users", "exporter_users", "", _file, lambda path: path or "none",
        "file of users that may read the page by basic auth: lines NAME:SHA256"),
    Key("exporter.processes", "exporter_processes_count", 0, _few, str,
        "number of processes per GPU whose memory the metrics page shows, largest first"),
)  # fmt: skip

BY_NAME: Mapping[str, Key] = {key.name: key for key in KEYS}


def find_misspelt(names: Iterable[str]) -> dict[str, str]:
    """Return the variables that look like a misspelt setting, each with that setting's; other variables may exist too."""
    known = {key.variable.removeprefix(_PREFIX): key.variable for key in KEYS}
    unknown = {each.removeprefix(_PREFIX) for each in names if each.startswith(_PREFIX)} - {*known, "CONFIG"}
    if not unknown:
        return {}
    import difflib

    nearest = {own: difflib.get_close_matches(own, known, n=1, cutoff=0.8) for own in sorted(unknown)}
    return {_PREFIX + own: known[near[0]] for own, near in nearest.items() if near}
