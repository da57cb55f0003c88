"""One instruction of PTX or SASS in the form that is compared, and the unified diff of two kernels' instructions."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_CONTEXT = 3
_WIDTH = 64  # columns of an instruction, before its source line
# difflib's time grows with the square of the length.  Beyond this length difflib treats frequent instructions as noise.
_EXACT_LINES = 3000


@dataclass(frozen=True, slots=True)
class CodeLine:
    """An instruction: ``exact`` has the numbers of registers and jump targets, ``text`` omits them, ``kind`` is its class."""

    kind: str
    text: str
    depth: int = 0
    file: str = ""
    line: int = 0
    exact: str = ""


def unified(a: Sequence[CodeLine], b: Sequence[CodeLine], names: tuple[str, str]) -> Iterator[str]:
    """Yield the lines of a unified diff, or nothing if the instructions are equal.

    The same instruction at two loop depths counts as a difference.
    """
    keys = [[(each.text, each.depth) for each in code] for code in (a, b)]
    matcher = difflib.SequenceMatcher(None, keys[0], keys[1], autojunk=max(len(a), len(b)) > _EXACT_LINES)
    groups = [group for group in matcher.get_grouped_opcodes(_CONTEXT) if any(code[0] != "equal" for code in group)]
    if groups:
        yield f"--- {names[0]}"
        yield f"+++ {names[1]}"
    for group in groups:
        begin_a, end_a = group[0][1], group[-1][2]
        begin_b, end_b = group[0][3], group[-1][4]
        yield f"@@ -{begin_a + 1},{end_a - begin_a} +{begin_b + 1},{end_b - begin_b} @@"
        for tag, from_a, to_a, from_b, to_b in group:
            if tag == "equal":
                yield from (_line(" ", each) for each in b[from_b:to_b])
            else:
                yield from (_line("-", each) for each in a[from_a:to_a])
                yield from (_line("+", each) for each in b[from_b:to_b])


def _line(mark: str, code: CodeLine) -> str:
    text = f"{mark}{'  ' * code.depth}{code.text}"
    return f"{text:<{_WIDTH}} ; {code.file}:{code.line}" if code.line else text
