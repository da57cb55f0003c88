"""Natural loops of a kernel's control-flow graph, found from back edges to a dominating instruction."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """Successors of one instruction: the indices of its jump targets, and whether the next instruction may follow."""

    targets: tuple[int, ...] = ()
    falls_through: bool = True


def loop_depths(steps: Sequence[Step]) -> list[int]:
    """Return each instruction's loop depth, 0 if it is unreachable.  Loops with the same header count once."""
    ways = [_ways_on(step, index, len(steps)) for index, step in enumerate(steps)]
    reached, backward = _walk(ways)
    before: list[list[int]] = [[] for _ in steps]
    for index in reached:
        for each in ways[index]:
            before[each].append(index)
    bodies: dict[int, set[int]] = {}
    for index, header in backward:
        body = _gather(header, index, before)
        if header == 0 or 0 not in body:  # else the entry reaches the latch without the header
            bodies.setdefault(header, set()).update(body)
    depths = [0] * len(steps)
    for body in bodies.values():
        for index in body:
            depths[index] += 1
    return depths


def _ways_on(step: Step, index: int, count: int) -> list[int]:
    # An instruction that jumps to itself is the trap after a kernel's end, not a loop.
    ways = [target for target in step.targets if 0 <= target < count and target != index]
    return [*ways, index + 1] if step.falls_through and index + 1 < count else ways


def _walk(ways: Sequence[Sequence[int]]) -> tuple[set[int], list[tuple[int, int]]]:
    """Return the reachable instructions, and the edges back to an instruction on the current depth-first path."""
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
    """Return a loop's instructions: the header, and all that reach the latch without passing the header."""
    body, waiting = {header}, [latch]
    while waiting:
        each = waiting.pop()
        if each not in body:
            body.add(each)
            waiting.extend(before[each])
    return body
