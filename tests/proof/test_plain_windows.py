"""Plain windows, without times of iterations, of honest and disturbed work: any program, in containers or outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from annotate.budget import Proof, ProofState
from annotate.capsule.pack import unpack
from annotate.evidence import Evidence
from annotate.judge import judge
from annotate.verdict import Status, Verdict
from tests.proof.asked import due, paused, seen
from tests.proof.cases import made
from tests.proof.company import OWN_PID
from tests.proof.plain_programs import PROGRAMS, contained, plain, with_second, without_lists
from tests.proof.testified import Variant
from tests.proof.workloads import WORKLOADS
from tests.truth_windows import truth_windows

VALID, UNPROVEN, FLAGGED, REJECTED = Status.VALID, Status.UNPROVEN, Status.FLAGGED, Status.REJECTED
STEADY = [each.name for each in WORKLOADS if each.name != "sleeps between"]
DECODE = tuple(unpack(Path("tests/traces/h200-decode.capsule").read_bytes()))


def state(verdict: Verdict, proof: Proof) -> ProofState:
    assert verdict.budget is not None
    return next(each.state for each in verdict.budget.proofs if each.proof is proof)


@pytest.mark.parametrize("name", STEADY)
def test_warmed_work_is_valid(name: str) -> None:
    due(judge(plain(name)), VALID)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", ["gemm", "softmax"])
def test_any_program_around_honest_work_is_valid(program: str, name: str) -> None:
    """A valid verdict needs neither torch nor declared facts."""
    due(judge(PROGRAMS[program](plain(name))), VALID)


@pytest.mark.parametrize("rest_s", [0.05, 0.3, 1.5])
@pytest.mark.parametrize("name", ["softmax", "copy", "gemm", "large gemm"])
def test_work_after_a_pause_is_valid(name: str, rest_s: float) -> None:
    """A pause before a window of 4 s changes throughput by less than 1 %, so the window is valid."""
    found = seen(replace(paused(rest_s, name), variant=Variant.PLAIN))
    assert abs(found.truth.throughput) < 0.01
    due(found.verdict(), VALID)


@pytest.mark.parametrize("program", PROGRAMS)
def test_stall_is_rejected_in_any_program(program: str) -> None:
    due(judge(PROGRAMS[program](plain("softmax", made("host-stall", "sleep", (1.5, 1.9))))), REJECTED)


@pytest.mark.parametrize("name", ["gemm", "softmax", "copy"])
def test_container_with_empty_lists_is_unproven(name: str) -> None:
    """Empty process lists do not prove ``nobody-else``, and the verdict's reason names the missing proof."""
    verdict = judge(without_lists(name))
    due(verdict, UNPROVEN)
    assert "nobody-else: process lists that show the whole machine" in verdict.why


@pytest.mark.parametrize("name", ["gemm", "softmax", "copy"])
def test_container_with_one_unknown_process_is_valid(name: str) -> None:
    """One unknown PID counts as the window's own process if the process accounts for the GPU's busy time."""
    due(judge(contained(plain(name))), VALID)


def test_container_with_two_unknown_processes_is_flagged() -> None:
    due(judge(with_second(contained(plain("softmax")))), FLAGGED, REJECTED)


@pytest.mark.parametrize("name", ["gemm", "softmax"])
def test_container_with_own_process_is_valid_or_unproven(name: str) -> None:
    """The container's own process is listed, and others could be hidden: an unproven verdict names ``nobody-else``."""
    verdict = judge(contained(plain(name), own=True))
    due(verdict, VALID, UNPROVEN)
    if verdict.status is UNPROVEN:
        assert "nobody-else" in verdict.why
    assert state(verdict, Proof.WORK_SEEN) is ProofState.SHOWN


@pytest.mark.parametrize("depth", [0.03, 0.1, 0.5])
@pytest.mark.parametrize("name", ["gemm", "softmax", "copy"])
def test_hidden_neighbour_is_never_valid(name: str, depth: float) -> None:
    """Work of another container, absent from every list, takes 1.6 to 27 % of throughput."""
    due(judge(plain(name, made("neighbour-slices", "hidden", (-3.0, 4.0), depth=depth))), UNPROVEN, FLAGGED, REJECTED)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_listed_neighbour_is_never_valid(seed: int) -> None:
    due(judge(plain("gemm", made("neighbour-slices", "listed", (0.5, 3.0), depth=0.1), seed=seed)), FLAGGED, REJECTED)


# Plain windows recorded on an H200, with the statuses that follow from their true deviations.
RECORDED: Mapping[str, tuple[Status, ...]] = {
    # An earlier daemon did not read the power record after the window, so the window's last part has no power samples.
    "nothing-decode-plain": (FLAGGED, UNPROVEN),
    "nothing-train-plain": (VALID, FLAGGED),  # clean windows of this work differ by 1.4 %
    "stall-0.3-decode-plain": (REJECTED,),
    "neighbour-10-decode-plain": (FLAGGED, REJECTED),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_plain_window_gets_the_expected_status(name: str) -> None:
    due(judge(truth_windows()[name].disturbed), *RECORDED[name])


@pytest.mark.parametrize("recorded", DECODE, ids=lambda each: each.window.label)
def test_undisturbed_decode_of_the_current_daemon_is_valid(recorded: Evidence) -> None:
    due(judge(recorded), VALID)


def test_plain_window_lists_the_own_process_alone() -> None:
    """The lists behind the simulated container name the window's own process and no other."""
    of = plain("softmax")
    assert {process.pid for each in of.trace.process_lists for process in each.processes} == {OWN_PID}
