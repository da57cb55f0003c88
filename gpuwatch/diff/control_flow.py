"""Loops of a kernel: the natural loops of its control-flow graph, from backward edges to an instruction that dominates them."""

from collections.abc import Sequence
from dataclasses import dataclass


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
