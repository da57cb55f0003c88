"""Text from outside converted to UTF-8: the kernel's names of processes and files are bytes, and drivers may send any bytes."""

import re
import reprlib
from typing import Any

_SURROGATES = re.compile("[\ud800-\udfff]")


def clean_text(text: bytes | str) -> str:
    """Replace everything that UTF-8 cannot hold: undecodable bytes, and the lone surrogates that Python decodes them to."""
    if isinstance(text, bytes):
        return text.decode("utf-8", "replace")
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def clean_tree(tree: Any) -> Any:  # plain data of any shape
    """Clean every text of plain data, keys included; a tuple becomes a list, as in JSON."""
    if isinstance(tree, str):
        return clean_text(tree)
    if isinstance(tree, dict):
        return {clean_tree(key): clean_tree(value) for key, value in tree.items()}
    return [clean_tree(each) for each in tree] if isinstance(tree, list | tuple) else tree


def found_words(value: object) -> str:
    """Return a short representation of a value for an error message, even if ``repr`` is huge or fails."""
    try:
        return reprlib.repr(value)
    except Exception:  # noqa: BLE001 - the code of the caller's type
        return f"a {type(value).__name__}"
