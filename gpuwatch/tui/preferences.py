"""The user's preferences (theme, rate, sort order, keys) in a small JSON file."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from textual.keys import Keys

from gpuwatch import atomic_write

RATES_HZ = (1.0, 2.0, 4.0, 10.0)
_NAMED = {key.value for key in Keys} | {
    "tab", "enter", "space", "escape", "backspace", "delete", "insert", "home", "end", "pageup", "pagedown", "up", "down",
    "left", "right", *(f"f{number}" for number in range(1, 25)),
}  # fmt: skip
_MODIFIERS = ("ctrl+", "shift+", "alt+", "super+")


@dataclass(frozen=True, slots=True)
class Preferences:
    """The preferences of one user.

    ``keys`` maps an action, named as in the help, to the keys that replace the default, such as {"pause": "p,f5"}.
    """

    theme: str | None = None
    rate_hz: float | None = None
    sort: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)


class PreferencesFile:
    """The preferences file of one user; an unreadable or malformed file is reported, ignored, and never overwritten."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.complaint: str | None = None
        self.preferences = Preferences()
        if path is not None:
            try:
                self.preferences = _read(path)
            except FileNotFoundError:
                pass
            except (OSError, ValueError, RecursionError) as error:
                reason = error.strerror if isinstance(error, OSError) and error.strerror else error
                self.complaint = f"{path}: {reason}; correct or delete the file, which is ignored until then"

    def store(self, **changed: Any) -> str | None:
        """Apply these changes, and store them if possible; return the write's error in one line, or None."""
        self.preferences = replace(self.preferences, **changed)
        if self.path is None or self.complaint is not None:
            return None
        data = {name: value for name, value in asdict(self.preferences).items() if value}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write.replace(self.path, f"{json.dumps(data, indent=2)}\n".encode(), mode=0o600)
        except OSError as error:
            return f"{self.path}: preferences not stored: {error.strerror}"
        return None


def check_keys(keys: Mapping[str, str], actions: Collection[str]) -> str | None:
    """Return the first mistake in one line; None without a mistake."""
    for action, given in keys.items():
        if action not in actions:
            return f"keys: expected one of {', '.join(sorted(actions))}, found {action!r}"
        for key in given.split(","):
            bare = key.strip()
            while bare.startswith(_MODIFIERS):
                bare = bare.partition("+")[2]
            if len(bare) != 1 and bare not in _NAMED and not (bare.isidentifier() and key.strip() == bare and "_" in bare):
                return f'keys: {action}: expected keys such as "p", "f5" or "ctrl+p", found {given!r}'
    return None


def _read(path: Path) -> Preferences:
    data = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise ValueError(f"expected an object, found {type(data).__name__}")
    known = {each.name for each in fields(Preferences)}
    if unknown := set(data) - known:
        raise ValueError(f"expected {', '.join(sorted(known))}, found {', '.join(sorted(map(repr, unknown)))}")
    for name in ("theme", "sort"):
        if not isinstance(data.get(name, ""), str):
            raise ValueError(f"{name}: expected text, found {data[name]!r}")
    if data.get("rate_hz", RATES_HZ[0]) not in RATES_HZ:
        raise ValueError(f"rate_hz: expected one of {', '.join(f'{rate:g}' for rate in RATES_HZ)}, found {data['rate_hz']!r}")
    keys = data.get("keys", {})
    if not isinstance(keys, dict) or not all(isinstance(given, str) for given in keys.values()):
        raise ValueError(f'keys: expected an object of actions and keys, such as {{"pause": "p"}}, found {keys!r}')
    return Preferences(**data)
