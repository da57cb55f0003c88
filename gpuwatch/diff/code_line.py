"""Instructions of PTX or SASS: as both are compared, as a unified diff, and in the natural loops of their control flow."""

import difflib
from collections.abc import Iterator, Sequence
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


_CONTEXT = 3
_WIDTH = 64  # of an instruction, before its line of the source
# difflib takes time with the square of the length; beyond this it treats frequent instructions as noise.
_EXACT_LINES = 3000


def unified(a: Sequence[CodeLine], b: Sequence[CodeLine], names: tuple[str, str]) -> Iterator[str]:
    """Yield the lines of a unified diff; nothing where the instructions are the same.

    An instruction at another loop depth is another instruction.
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


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction's ways on: indices it may jump to, and whether the next one may follow it."""

    targets: tuple[int, ...] = ()
    falls_through: bool = True


def loop_depths(steps: Sequence[Step]) -> list[int]:
    """Return how many loops each instruction is in; zero for one that cannot be reached.  Loops with the same header are one."""
    ways = [_ways_on(step, index, len(steps)) for index, step in enumerate(steps)]
    reached, backward = _walk(ways)
    before: list[list[int]] = [[] for _ in steps]
    for index in reached:
        for each in ways[index]:
            before[each].append(index)
    bodies: dict[int, set[int]] = {}
    for index, header in backward:
        body = _gather(header, index, before)
        if header == 0 or 0 not in body:  # else a way from the entry leads past the header, which does not dominate
            bodies.setdefault(header, set()).update(body)
    depths = [0] * len(steps)
    for body in bodies.values():
        for index in body:
            depths[index] += 1
    return depths


def _ways_on(step: Step, index: int, count: int) -> list[int]:
    # An instruction that jumps to itself is the trap behind a kernel's end, not a loop.
    ways = [target for target in step.targets if 0 <= target < count and target != index]
    return [*ways, index + 1] if step.falls_through and index + 1 < count else ways


def _walk(ways: Sequence[Sequence[int]]) -> tuple[set[int], list[tuple[int, int]]]:
    """Return the instructions that can be reached, and the edges that lead back to one on the way to their beginning."""
    reached, on_way, backward = {0}, {0}, []
    path = [(0, iter(ways[0]))] if ways else []
    while path:
        index, rest = path[-1]
        each = next(rest, None)
        if each is None:
            on_way.discard(index)
            path.pop()
        elif each in on_way:
            backward.append((index, each))
        elif each not in reached:
            reached.add(each)
            on_way.add(each)
            path.append((each, iter(ways[each])))
    return reached if ways else set(), backward


def _gather(header: int, latch: int, before: Sequence[Sequence[int]]) -> set[int]:
    """Return a loop's instructions: those that reach its latch without its header, and the header."""
    body, waiting = {header}, [latch]
    while waiting:
        each = waiting.pop()
        if each not in body:
            body.add(each)
            waiting.extend(before[each])
    return body
