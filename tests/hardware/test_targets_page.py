"""Tests of the table of targets."""

from __future__ import annotations

from tests.hardware import targets_page
from tests.hardware.paired_scores import Scored
from tests.hardware.render import PAGE
from tests.proof.scores import Answer, Row


def scored(workload: str, apart_ratio: float) -> Scored:
    row = Row(
        seed=1, family="host-stall", clean=False, workload=workload, variant="stamped", length_s=3.0,
        truth={"median": 0.0}, answer=Answer(bounds={"median": 0.0}, repeatability={"median": 0.001}, status="valid"),
    )  # fmt: skip
    return Scored(row=row, card="a", date="2026-11-28", is_capped=False, references_differ={"median": apart_ratio})


def test_target_states_figures_with_and_without_decoding_loops() -> None:
    """A target that only loops of many kernels miss is not met, and is met without these loops; both counts are stated."""
    steady = [scored("copy-1g", apart) for apart in (-0.0005, 0.0, 0.0005)]
    loops = [scored("decode-graph", apart) for apart in (-0.05, 0.05)]
    line = targets_page._two("repeatability", 0.001, [*steady, *loops], lambda each: each.references_differ["median"])
    assert line.endswith(" of 5; without decoding loops 0.048% of 3 | **not met**; without decoding loops met |")


def test_page_has_every_target_of_the_specification() -> None:
    """Read the committed page, which ``python -m tests.pages --check`` compares: computing the section takes seconds."""
    lines = PAGE.read_text(encoding="utf-8").partition("\n## Targets, met or not\n")[2].partition("\n## ")[0].splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| target")]
    assert len(rows) == 4 + 1 + 4 + 3 + 2 + 6 + 3
    assert all("met" in row.split("|")[-2] for row in rows)
