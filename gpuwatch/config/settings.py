"""The user's configuration: flags > environment > the user's file > the system's > defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from annotate.times.reference_clock import ReferenceClock
from annotate.user_policy import Policy
from gpuwatch.config.keys import BY_NAME, KEYS, Key, path_of
from gpuwatch.config.paths import (
    SYSTEM_CONFIG,
    SYSTEM_SOCKET,
    SYSTEM_STATE,
    default_socket,
    default_state,
    ensure_socket_folder,
    user_config,
)
from gpuwatch.config.quantities import QuantityError
from gpuwatch.errors import UsageError

# GPUWATCH_ variables that are not settings: harness windows, the configuration file, longer harness runs, parent and tags.
_OTHER_VARIABLES = frozenset(f"GPUWATCH_{name}" for name in ("AUTO", "CONFIG", "EXTEND", "PARENT", "TAGS"))
_Value = TypeVar("_Value")
_TABLES = frozenset(name.partition(".")[0] for name in BY_NAME if "." in name)
_LIBRARY_VARIABLES = "GPUWATCH_NVTX"  # prefix of the C library's variables
# The first setting of each pair may not exceed the second; a configured value wins over a default.
_ORDERED = (("sampling.active_period", "sampling.idle_period"), ("store.segment", "store.budget"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting with its origin; ``keys.KEYS`` has their meanings."""

    source: str
    state: Path
    socket: Path
    log_level: str
    tolerance_ratio: float  # 0 for none, as in precision_ratio
    precision_ratio: float
    card_spread_ratio: float  # of two cards of a model; 0 for the model's recorded spread
    reference_clock_mhz: ReferenceClock = field(hash=False)  # 0 for the model's recorded clock
    idle_period_ns: int
    active_period_ns: int
    budget_ratio: float
    store_budget_bytes: int
    store_max_age_s: float
    segment_bytes: int
    idle_exit_s: float
    listen: str  # HOST:PORT, empty for no listener
    listen_insecure: bool
    exporter_certificate: str  # paths, empty for none
    exporter_key: str
    exporter_client_ca: str
    exporter_users: str
    exporter_processes_count: int
    origins: Mapping[str, str] = field(compare=False)  # by field
    given: Mapping[str, str] = field(compare=False)  # the flags, for reading the files again

    @property
    def simulated(self) -> bool:
        """Return True if the source is a simulation or a recording."""
        return self.source.partition(":")[0] in ("simulated", "replay")

    def complete(self, policy: Policy) -> Policy:
        """Return the policy with these settings in place of the thresholds that it leaves open."""
        return policy.or_thresholds(
            self.tolerance_ratio, self.precision_ratio, self.card_spread_ratio, self.reference_clock_mhz or None
        )

    @property
    def log(self) -> Path:
        """Return the log of a daemon started on demand; any other daemon logs to standard error."""
        return self.state / "daemon.log"

    def origin(self, name: str) -> str:
        """Return ``default`` or the origin of the value: ``--state``, ``GPUWATCH_STATE``, ``/etc/gpuwatch/config.toml:3``."""
        return self.origins[name]

    def flags(self) -> list[str]:
        """Return the options that make another ``gpuwatch`` process find the same source, store and socket."""
        named = {"source": self.source, "state": str(self.state), "socket": str(self.socket)}
        named |= {name: self.given[name] for name in ("config", "log_level") if name in self.given}
        return [f"--{name.replace('_', '-')}={value}" for name, value in named.items()]

    def variables(self) -> dict[str, str]:
        """Return the given settings as environment variables for another ``gpuwatch`` process."""
        return {key.variable: self.given[key.name] for key in KEYS if key.name in self.given}

    def reread(self) -> Settings:
        """Load the settings again from the current files and environment, under the same flags.

        Raises UsageError: as ``load``.
        """
        return load(self.given)


def load(flags: Mapping[str, str] | None = None, *, environment: Mapping[str, str] | None = None) -> Settings:
    """Load the settings in force.

    ``flags`` hold text by key name (``source``, ``sampling.idle_period``), and ``config``, a file to read instead of the
    user's and the system's files.

    Raises UsageError: for an unknown key, an invalid value, values that contradict each other, and an unreadable file.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    env = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for file in reversed(files(given, env)):
        for key, raw, place in _read_file(file):
            values[key.field], origins[key.field] = _read(key.read, raw, place, f"{key.name}: "), place
    for key in KEYS:
        if env.get(key.variable):
            values[key.field], origins[key.field] = _read(key.read, env[key.variable], key.variable), key.variable
        if key.name in given:
            flag = f"--{key.name.replace('_', '-')}"
            values[key.field], origins[key.field] = _read(key.read, given[key.name], flag), flag
        if key.field not in values and key.default is not None:
            values[key.field], origins[key.field] = key.default, "default"
    for name, make in (("state", default_state), ("socket", default_socket)):
        if name not in values:
            values[name], origins[name] = make(values["source"], env), "default"
    _reconcile(values, origins)
    return Settings(**values, origins=origins, given=given)


def files(flags: Mapping[str, str], environment: Mapping[str, str]) -> tuple[Path, ...]:
    """List the configuration files to read, highest precedence first.

    Raises UsageError: when the named file is missing or its path invalid.
    """
    named = flags.get("config") or environment.get("GPUWATCH_CONFIG")
    if named:
        path = _read(path_of, named, "the configuration file")
        if not path.is_file():
            raise UsageError(f"{path}: expected a configuration file, found none")
        return (path,)
    # An inaccessible file, such as one in another user's home after sudo -u, is not this user's configuration.
    return tuple(path for path in (user_config(environment), SYSTEM_CONFIG) if os.access(path, os.F_OK))


def list_errors(flags: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """Return the error of every wrong key and value in the configuration files; settings may still contradict each other.

    Raises UsageError: as ``files``, and for a file that cannot be read.
    """
    found = []
    for file in files(flags, environment):
        for name, raw, place in _read_entries(file):
            try:
                key = _known_key(name, raw, place)
                _read(key.read, raw, place, f"{name}: ")
            except UsageError as error:
                found.append(str(error))
    return found


def unknown_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """List the unknown GPUWATCH_ variables.  An unknown one is not an error, because an orchestrator may set GPUWATCH_PORT."""
    known = {key.variable for key in KEYS} | _OTHER_VARIABLES
    ours = [name for name in environment if name.startswith("GPUWATCH_") and not name.startswith(_LIBRARY_VARIABLES)]
    return tuple(sorted(name for name in ours if name not in known))


def _read_file(path: Path) -> Iterator[tuple[Key, object, str]]:
    for name, raw, place in _read_entries(path):
        yield _known_key(name, raw, place), raw, place


def _known_key(name: str, raw: object, place: str) -> Key:
    if name in _TABLES:
        raise UsageError(f"{place}: {name}: expected a table [{name}], found {raw!r}")
    if name not in BY_NAME:
        raise UsageError(f"{place}: unknown key {name!r}; {_hint(name)}")
    return BY_NAME[name]


def _read_entries(path: Path) -> Iterator[tuple[str, object, str]]:
    import tomllib  # imported late: slow, and most processes have no file to read

    try:
        text = path.read_bytes().decode()
        table = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: expected a readable file, found: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: expected UTF-8, found byte {error.object[error.start]:#04x} at {error.start}") from error
    except ValueError as error:  # also for a number of more than 4300 digits
        raise UsageError(f"{path}: expected TOML, found: {error}") from error
    for name, raw in _flat(table):
        yield name, raw, f"{path}:{line}" if (line := _line_of(name, text)) else str(path)


def _flat(table: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if name in _TABLES and isinstance(value, dict):
            yield from ((f"{name}.{inner}", raw) for inner, raw in value.items())
        else:
            yield name, value


def _hint(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, BY_NAME, n=1)
    near = near or [known for known in BY_NAME if known.rpartition(".")[2] == name.rpartition(".")[2]]
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(BY_NAME)}"


def _line_of(name: str, text: str) -> int | None:
    """Return the line of a key, found in the text because the parser does not keep lines; None if no line matches."""
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            table = stripped.strip("[] ").replace(" ", "") + "."
            if table == f"{name}.":
                return number
        elif "=" in stripped:
            key = stripped.partition("=")[0].replace(" ", "").replace('"', "")
            if table + key == name or name.startswith(f"{table}{key}."):
                return number
    return None


def _read(read: Callable[[object], _Value], raw: object, place: str, name: str = "") -> _Value:
    try:
        return read(raw)
    except QuantityError as error:
        raise UsageError(f"{place}: {name}{error}") from error


def _reconcile(values: dict[str, Any], origins: Mapping[str, str]) -> None:
    for names in _ORDERED:
        small, large = BY_NAME[names[0]], BY_NAME[names[1]]
        if values[small.field] <= values[large.field]:
            continue
        if origins[small.field] == "default":
            values[small.field] = values[large.field]
        elif origins[large.field] == "default":
            values[large.field] = values[small.field]
        else:
            bound = f"{large.name} ({large.write(values[large.field])}, {origins[large.field]})"
            found = small.write(values[small.field])
            raise UsageError(f"{origins[small.field]}: {small.name}: expected at most {bound}, found {found}")


__all__ = [
    "SYSTEM_CONFIG",
    "SYSTEM_SOCKET",
    "SYSTEM_STATE",
    "Settings",
    "ensure_socket_folder",
    "files",
    "list_errors",
    "load",
    "unknown_variables",
    "user_config",
]
