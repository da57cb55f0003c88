"""One instruction of PTX or SASS, as both are compared."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeLine:
    """An instruction: ``exact`` as it is, ``text`` without numbers of registers and addresses, ``kind`` its class."""

    kind: str
    text: str
    depth: int = 0
    file: str = ""
    line: int = 0
    exact: str = ""
