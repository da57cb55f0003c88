"""Target: file, environment and options give settings that survive a round trip, or a one-line error."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpuwatch.config import settings
from gpuwatch.config.keys import KEYS
from gpuwatch.errors import UsageError
from tests.fuzz.dealt import Dealt
from tests.fuzz.refused import in_one_line

_FOLDER = Path(tempfile.mkdtemp(prefix="gpuwatch-fuzz"))
_TOML = _FOLDER / "config.toml"


def target(data: bytes) -> None:
    dealt = Dealt(data)
    flags: dict[str, str] = {}
    environment = {"HOME": "/"}
    for _ in range(dealt.byte() % 4):
        key, text = dealt.choice(KEYS), dealt.text()
        if dealt.byte() % 2:
            flags[key.name] = text
        else:
            environment[key.variable] = text
    _TOML.write_bytes(dealt.rest())
    flags["config"] = str(_TOML)
    try:
        found = settings.load(flags, environment=environment)
    except UsageError as error:
        in_one_line(error)
        return
    written = {key.name: key.write(getattr(found, key.field)) for key in KEYS}
    written = {name: text for name, text in written.items() if text not in ("", "none")}
    again = settings.load(written, environment={"HOME": "/"})
    assert again == found, (again, found)
    found.flags()
