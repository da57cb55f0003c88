"""Tests of loop depths, on graphs with known loops."""

from __future__ import annotations

import pytest

from gpuwatch.diff.control_flow import Step, loop_depths

ON = Step()
END = Step(falls_through=False)


def jump(*targets: int) -> Step:
    return Step(targets, falls_through=False)


def branch(*targets: int) -> Step:
    return Step(targets)


@pytest.mark.parametrize(
    ("steps", "depths"),
    [
        ([], []),
        ([ON, ON, END], [0, 0, 0]),
        ([ON, ON, branch(1), END], [0, 1, 1, 0]),
        ([ON, ON, ON, branch(2), branch(1), END], [0, 1, 2, 2, 1, 0]),
        ([ON, branch(3), ON, END], [0, 0, 0, 0]),
        ([ON, ON, branch(1), branch(1), END], [0, 1, 1, 1, 0]),
    ],
    ids=["nothing", "straight", "loop", "nested", "forward", "two ways back"],
)
def test_loop_depths_count_enclosing_loops(steps: list[Step], depths: list[int]) -> None:
    assert loop_depths(steps) == depths


def test_trap_after_the_end_is_not_a_loop() -> None:
    assert loop_depths([ON, END, jump(2)]) == [0, 0, 0]


def test_block_placed_after_the_end_is_not_a_loop() -> None:
    """A rare path that ptxas places last jumps back to a target that does not dominate the path: no loop."""
    assert loop_depths([ON, branch(4), ON, END, ON, jump(2)]) == [0, 0, 0, 0, 0, 0]


def test_rare_path_of_a_loop_counts_as_inside() -> None:
    assert loop_depths([ON, branch(5), ON, branch(1), END, ON, jump(2)]) == [0, 1, 1, 1, 0, 1, 1]


def test_unreachable_code_has_no_depth() -> None:
    assert loop_depths([END, ON, branch(1)]) == [0, 0, 0]


def test_jumps_out_of_the_function_are_ignored() -> None:
    assert loop_depths([branch(99), branch(-3), END]) == [0, 0, 0]


def test_loop_depth_of_thousands_of_blocks_is_one() -> None:
    count = 2000
    steps = [branch(index + 2) for index in range(count)] + [branch(0), END]
    assert loop_depths(steps)[0] == 1
