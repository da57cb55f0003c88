"""Loops of a kernel: the natural loops of its control-flow graph, from backward edges to a block that dominates them."""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction's ways on: indices it may jump to, and whether the next one may follow it."""

    targets: tuple[int, ...] = ()
    falls_through: bool = True


def loop_depths(steps: Sequence[Step]) -> list[int]:
    """Return how many loops each instruction is in; zero for one that cannot be reached."""
    if not steps:
        return []
    starts = _block_starts(steps)
    block_of = _blocks_of(starts, len(steps))
    following = [sorted({block_of[each] for each in _ways_on(steps, end - 1)}) for end in [*starts[1:], len(steps)]]
    depth_of_block = [0] * len(starts)
    for body in _natural_loops(following):
        for block in body:
            depth_of_block[block] += 1
    return [depth_of_block[block] for block in block_of]


def _ways_on(steps: Sequence[Step], last: int) -> list[int]:
    step = steps[last]
    # An instruction that jumps to itself is the trap behind a kernel's end, not a loop.
    ways = [target for target in step.targets if 0 <= target < len(steps) and target != last]
    return [*ways, last + 1] if step.falls_through and last + 1 < len(steps) else ways


def _block_starts(steps: Sequence[Step]) -> list[int]:
    starts = {0}
    for index, step in enumerate(steps):
        starts.update(target for target in step.targets if 0 <= target < len(steps))
        if (step.targets or not step.falls_through) and index + 1 < len(steps):
            starts.add(index + 1)
    return sorted(starts)


def _blocks_of(starts: Sequence[int], count: int) -> list[int]:
    blocks, current = [], -1
    following = set(starts)
    for index in range(count):
        current += index in following
        blocks.append(current)
    return blocks


def _natural_loops(following: Sequence[Sequence[int]]) -> list[set[int]]:
    """Return the blocks of each loop; loops with the same header are one."""
    order = _reverse_postorder(following)
    before: list[list[int]] = [[] for _ in following]
    for block in order:
        for each in following[block]:
            before[each].append(block)
    dominators = _dominators(order, before)
    bodies: dict[int, set[int]] = {}
    for block in order:
        for header in following[block]:
            if dominators[block] >> header & 1:
                _gather(bodies.setdefault(header, {header}), block, before)
    return list(bodies.values())


def _gather(body: set[int], block: int, before: Sequence[Sequence[int]]) -> None:
    waiting = [block]
    while waiting:
        each = waiting.pop()
        if each not in body:
            body.add(each)
            waiting.extend(before[each])


def _reverse_postorder(following: Sequence[Sequence[int]]) -> list[int]:
    seen, order = {0}, []
    waiting = [(0, iter(following[0]))]
    while waiting:
        block, ways = waiting[-1]
        step = next((each for each in ways if each not in seen), None)
        if step is None:
            order.append(block)
            waiting.pop()
        else:
            seen.add(step)
            waiting.append((step, iter(following[step])))
    return order[::-1]


def _dominators(order: Sequence[int], before: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the blocks on every way to each block, itself among them, as a set of bits."""
    found = dict.fromkeys(order, -1) | {order[0]: 1 << order[0]}
    is_settled = False
    while not is_settled:
        is_settled = True
        for block in order[1:]:
            common = functools.reduce(operator.and_, (found[each] for each in before[block])) | 1 << block
            if common != found[block]:
                found[block], is_settled = common, False
    return found
