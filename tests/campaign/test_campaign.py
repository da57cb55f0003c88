"""The campaign: every rule is measured, mutators have an effect, counts add up, and the tables show them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from annotate.evidence import Evidence
from annotate.rules import RULES
from tests.campaign import clean, measure, render, results
from tests.campaign.mutator import Mutator
from tests.campaign.mutators import MUTATORS

# A copy, and a capped GEMM of 0.2 ms: each mutator fits at least one of these windows.
SEEDS = (3, 5)


@pytest.fixture(scope="module")
def windows() -> dict[int, Evidence]:
    return {seed: clean.simulated(seed) for seed in SEEDS}


def test_every_rule_is_measured() -> None:
    assert {mutator.rule for mutator in MUTATORS} == {rule.name for rule in RULES}
    assert len({mutator.name for mutator in MUTATORS}) == len(MUTATORS)


@pytest.mark.parametrize("mutator", MUTATORS, ids=lambda mutator: mutator.name)
def test_largest_multiple_of_a_hazard_is_caught(mutator: Mutator, windows: dict[int, Evidence]) -> None:
    counts: Counter[str] = Counter()
    for seed, about in windows.items():
        counts.update(measure.of_mutator(mutator, about, np.random.default_rng(seed)))
    largest = f"injected/{mutator.name}/{mutator.multiples[-1]:g}"
    assert counts[f"{largest}/windows"], "no window can have this hazard"
    assert counts[f"{largest}/caught"] >= 1


def test_seed_decides_the_simulated_window() -> None:
    """A seed always gives the same window, and another seed gives another window."""
    first, again, other = clean.simulated(7), clean.simulated(7), clean.simulated(8)
    assert first.window == again.window
    assert np.array_equal(first.trace.column("power_w").values, again.trace.column("power_w").values)
    assert other.window.length_ns != first.window.length_ns


def test_mutator_does_not_change_the_clean_window(windows: dict[int, Evidence]) -> None:
    about = windows[SEEDS[0]]
    before = {name: column.values.copy() for name, column in about.trace.columns.items()}
    for mutator in MUTATORS:
        mutator.inject(about, 2.0, np.random.default_rng(0))
    assert all(np.array_equal(about.trace.column(name).values, values, equal_nan=True) for name, values in before.items())


def test_counts_of_other_seeds_add_and_the_same_seed_is_refused(tmp_path: Path) -> None:
    first = results.Results("judge").plus([0, 1], {"clean/copy/windows": 2, "clean/copy/alarms": 1}, {})
    both = first.plus([5], {"clean/copy/windows": 1})
    assert both.rate("clean/copy", "alarms") == results.Rate(1, 3)
    results.save(both, tmp_path / "results.json")
    kept = results.load(tmp_path / "results.json")
    assert (kept.seeds, kept.counts) == (both.seeds, both.counts)
    with pytest.raises(ValueError, match="seed 5"):
        kept.plus([5], {})


def test_rate_beyond_its_target_is_bold() -> None:
    """A rate that misses its target is bold, with bounds."""
    rule = RULES[0].name
    found = results.Results("judge", counts={f"clean-rule/{rule}/windows": 100, f"clean-rule/{rule}/alarms": 3})
    line = next(line for line in render.alarms_and_misses(found) if line.startswith(f"| {rule} "))
    assert "**3 %** | 0.62–8.5" in line


def test_committed_results_measure_every_rule_and_miss_few() -> None:
    """Every mutator was judged, and at most 1 % of the windows with a hazard of twice the limit are valid."""
    found = results.load()
    assert len(found.seeds) >= 150
    assert all(found.rate(f"injected/{each.name}/2", "caught").trials for each in MUTATORS)
    missed = [found.missed(f"injected/{each.name}/2", "not valid") for each in MUTATORS if not each.is_label]
    assert sum(each.hits for each in missed) <= 0.01 * sum(each.trials for each in missed)


def test_committed_results_meet_the_targets() -> None:
    """The committed results have at least 2000 windows and meet the target for false alarms."""
    found = results.load()
    assert len(found.seeds) >= 2000
    alarms = sum(found.rate(f"clean/{kind}", "alarms").hits for kind in found.names("clean"))
    assert alarms / len(found.seeds) <= render.MOST_ALARMS_RATIO
