"""Tests that run the fuzz targets on every kept input and on mutations from hypothesis, and a test of the stored counts."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import share_of
from tests.fuzz import corpus
from tests.fuzz.targets import FAMILIES, NAMES, target

# Examples per target in `make bench`, if not 120; the suite runs a third of these, but at least ten (all if there are fewer).
EXAMPLES_COUNT = {"escaping": 8, "told": 25, "headers": 40, "archives": 60, "conversations": 60, "reports": 60}
RESULTS = json.loads((Path(corpus.__file__).parent / "results.json").read_text())


def run(name: str, data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of arithmetic with impossible numbers
        target(name)(data)


@pytest.mark.parametrize("name", NAMES)
def test_kept_fuzz_inputs_pass(name: str) -> None:
    """Each target accepts or rejects every input of the corpus, and the corpus is small."""
    kept = corpus.inputs(name)
    assert 0 < len(kept) <= corpus.MOST_COUNT + 20
    for path in kept:
        assert path.stat().st_size <= corpus.MOST_BYTES
        run(name, path.read_bytes())


def test_rebuilt_corpus_keeps_names_of_seeds_and_past_crashes(tmp_path: Path) -> None:
    """An input that reaches no new line stays if it is a seed or a past crash; another one leaves."""
    folder = tmp_path / "sides"
    folder.mkdir()
    for name in ("seed-a", "crash-a", "0123"):
        (folder / name).write_bytes(b"")
    assert corpus.keep(NAMES[0], [], folder) == 2
    assert {path.name for path in folder.iterdir()} == {"seed-a", "crash-a"}


@st.composite
def mutated(draw: st.DrawFn, kept: list[bytes]) -> bytes:
    """Return a kept input with random changes, the end of another kept input, and random bytes."""
    data = bytearray(draw(st.sampled_from([*kept, b""])))
    for _ in range(draw(st.integers(0, 6))):
        if data:
            at = draw(st.integers(0, len(data) - 1))
            data[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
    return bytes(data) + draw(st.sampled_from([b"", *kept]))[draw(st.integers(0, 64)) :] + draw(st.binary(max_size=32))


@pytest.mark.parametrize("name", NAMES)
def test_mutated_fuzz_inputs_pass(name: str) -> None:
    kept = [path.read_bytes() for path in corpus.inputs(name)]

    @settings(max_examples=share_of(EXAMPLES_COUNT.get(name, 120)), suppress_health_check=list(HealthCheck), database=None)
    @given(mutated(kept))
    def holds(data: bytes) -> None:
        run(name, data)

    holds()


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "exporter"])
def test_fuzz_counts_are_a_million_per_family(family: str) -> None:
    """The committed results have at least a million inputs for each family except the exporter's."""
    again = f"python -m tests.fuzz {' '.join(FAMILIES[family])} --runs N"
    assert RESULTS["families"][family] >= 1_000_000, again
