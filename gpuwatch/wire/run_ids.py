"""The ids of runs, which sort by time and contain the second of the window's opening."""

import os
import re

_EPOCH_S = 1_577_836_800  # 2020
_FORM = re.compile(r"[0-9a-f]{18}\Z", re.ASCII)


def new_id(wall_s: float) -> str:
    """Return an id in hexadecimal digits: eight for the seconds since 2020, ten for 40 random bits."""
    return f"{int(wall_s) - _EPOCH_S:08x}{os.urandom(5).hex()}"


def begun_s(run_id: str) -> int | None:
    """Return the wall time in the id, in seconds since 1970; None for an id of another form."""
    return int(run_id[:8], 16) + _EPOCH_S if _FORM.match(run_id) else None
