"""Tests of a window around a whole program, which is judged from its first work on the GPU to its last."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from annotate.capsule.unpack import unpack
from annotate.claims import Claim
from annotate.derived.whole_program import FACT, working_part
from annotate.evidence import Column, Evidence, Times
from annotate.judge import judge
from annotate.user_policy import Policy
from annotate.verdict import Status

# `gpuwatch run -- python bench.py` on an H200: 3.4 s of imports, then GEMMs for 10 s.
_RECORDED = Path("tests/traces/h200-whole-program.capsule")
_REST_W = 117.0


@pytest.fixture(scope="module")
def program() -> Evidence:
    (evidence,) = unpack(_RECORDED.read_bytes())
    return evidence


def resting(program: Evidence, begin_s: float, end_s: float) -> Evidence:
    """Return the evidence with the GPU at rest in this part of the window, by power and utilisation."""
    since_ns = program.window.begin_ns

    def within(at_ns: Times) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        after_s = (at_ns - since_ns) / 1e9
        return np.asarray((after_s > begin_s) & (after_s < end_s))

    dense, used = program.trace.dense_power, program.trace.columns["utilization_ratio"]
    trace = replace(
        program.trace,
        dense_power=Column(dense.at_ns, np.where(within(dense.at_ns), _REST_W, dense.values)),
        columns={
            **program.trace.columns,
            "utilization_ratio": replace(used, values=np.where(within(used.at_ns), 0.0, used.values)),
        },
    )
    return replace(program, trace=trace)


def test_imports_before_the_work_are_not_judged(program: Evidence) -> None:
    verdict = judge(program)
    assert verdict.status is Status.VALID, str(verdict)
    assert verdict.labels[0].startswith("judged from 3.40 to 13.61 s")
    assert (verdict.begin_ns, verdict.end_ns) == (program.window.begin_ns, program.window.end_ns)
    assert verdict.claim_facts.whole_program is True


def test_same_window_around_a_part_is_rejected(program: Evidence) -> None:
    """Without the declaration of a whole program, the window claims all of its time."""
    verdict = judge(replace(program, declared={name: fact for name, fact in program.declared.items() if name != FACT}))
    assert verdict.status is Status.REJECTED, str(verdict)


def test_pause_between_the_work_counts(program: Evidence) -> None:
    verdict = judge(resting(program, 8.0, 9.5))
    assert verdict.status is Status.REJECTED, str(verdict)
    assert "idle-stretch" in {hazard.rule for hazard in verdict.hazards}


def test_program_without_work_has_no_part(program: Evidence) -> None:
    idle = resting(program, -10.0, 20.0)
    assert working_part(idle) is idle


def test_working_part_without_power_record_uses_utilisation(program: Evidence) -> None:
    bare = replace(program, trace=replace(program.trace, dense_power=Column(np.empty(0, np.int64), np.empty(0))))
    part, whole = working_part(bare).window, working_part(program).window
    assert abs(part.begin_ns - whole.begin_ns) < 5e8
    assert abs(part.end_ns - whole.end_ns) < 5e8


@pytest.mark.parametrize(
    ("begin_s", "end_s", "status"),
    [
        (0.0, 4.05, Status.REJECTED),  # 3.9 s of rest, then 0.15 s of work
        (0.0, 4.0, Status.REJECTED),
        (2.0, 4.0, Status.REJECTED),
        (0.0, 3.95, Status.UNPROVEN),  # two readings of the power record do not make a level
    ],
)
def test_short_work_after_rest_is_not_valid_sustained_work(begin_s: float, end_s: float, status: Status) -> None:
    """Short work after rest is not valid as sustained work, and unproven as a whole program.

    A whole program claims only its working time, which is too short for the books.
    """
    (late,) = unpack(Path("tests/traces/simulated-late-work.capsule").read_bytes())
    since_ns = late.window.begin_ns
    part = late.part(since_ns + int(begin_s * 1e9), since_ns + int(end_s * 1e9))
    sustained, program = (judge(replace(part, declared={**part.declared, FACT: each})) for each in (False, True))
    assert sustained.status is status, str(sustained)
    assert program.status is Status.UNPROVEN, str(program)
    assert (status is Status.UNPROVEN) or program.labels[0].startswith("judged from"), str(program)


@pytest.mark.parametrize("whole_program", [True, False])
@pytest.mark.parametrize(("claim", "facts"), [(Claim.BURST, {}), (Claim.SUSTAINED, {"every_s": 4.0})])
def test_rest_before_a_burst_or_periodic_call_is_valid(whole_program: bool, claim: Claim, facts: dict[str, float]) -> None:
    """A pause before a short call belongs to the claim of a burst or of calls with a period."""
    (late,) = unpack(Path("tests/traces/simulated-late-work.capsule").read_bytes())
    part = late.part(late.window.begin_ns, late.window.begin_ns + int(4.05e9))
    verdict = judge(replace(part, declared={**part.declared, **facts, FACT: whole_program}), Policy(claim=claim))
    assert verdict.finding("idle-stretch").severity != "reject", str(verdict)
    assert verdict.status is Status.VALID, str(verdict)
