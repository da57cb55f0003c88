"""The text of refusals: msgspec's errors about bounds in the interface's words, and any text in one bounded line."""

import re

REFUSAL_LENGTH = 2000  # largest length of a refusal, because the text may repeat a part of the request
_UNITS = {"str": "characters", "bytes": "bytes", "array": "entries", "object": "entries"}


def explain_bound(error: str) -> str | None:
    """Translate msgspec's error about a bound; return None for another error."""
    long = re.fullmatch(r"Expected `(\w+)` of length <= (\d+) - at (`key` in )?`\$\.(.*)`", error)
    if long is not None:
        kind, most, is_name, field = long.groups()
        return f"{'a name in ' if is_name else ''}{field}: expected at most {most} {_UNITS.get(kind, kind)}, found more"
    large = re.fullmatch(r"(?:Expected `int` [<>]= -?\d+|Integer value out of range) - at `\$\.(.*)`", error)
    return None if large is None else f"{large[1]}: expected a whole number from -2^63 to 2^63 - 1, found another"


def one_line(text: str, most: int = REFUSAL_LENGTH) -> str:
    """Return text as one line of at most ``most`` characters."""
    words = " ".join(text[: most + 1].split())
    return words if len(text) <= most else words[: most - 1] + "…"
