"""Reproducibility of pairs from their seeds, across processes and machines."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from dataclasses import astuple
from pathlib import Path

import pytest

from annotate.capsule.pack import pack
from annotate.evidence import Evidence
from tests.proof.disturbances import NOTHING, family_name
from tests.proof.pairs import LENGTH_S, length_s, pair, repeat

# True deviations at the design of the proof: a change means another set of pairs.
_TRUTHS = {
    1: (-0.003023558807, 0.003125649961, 0.003626044458, 0.00321668965),
    3: (-0.000555202001, 0.000600269485, -0.000159489633, 1.176048e-06),
    28: (-0.10423316599, 0.116812984832, -0.010916573661, -2.8286145e-05),
}


def content(*evidences: Evidence) -> bytes:
    """Return the files in a capsule of these windows, without the packing time in the archive."""
    with zipfile.ZipFile(io.BytesIO(pack(evidences))) as archive:
        return b"".join(archive.read(name) for name in sorted(archive.namelist()))


def digest(seed: int) -> str:
    """Return a digest of the evidence of both windows of a pair."""
    found = pair(seed)
    return hashlib.sha256(content(found.disturbed, found.clean)).hexdigest()


def test_pair_is_the_same_in_another_process() -> None:
    """A pair depends neither on the hashes of strings nor on earlier simulations."""
    code = "from tests.proof.test_proof_pairs import digest; print(digest(3), digest(28))"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True, check=True
    )
    assert finished.stdout.split() == [digest(3), digest(28)]


@pytest.mark.parametrize("seed", _TRUTHS)
def test_pair_keeps_its_true_deviation(seed: int) -> None:
    """The true deviation of a seed equals the one on the machine where the proof was designed."""
    assert astuple(pair(seed).truth) == pytest.approx(_TRUTHS[seed], abs=1e-7)


def test_undisturbed_pair_has_two_equal_windows() -> None:
    seed = next(seed for seed in range(100) if family_name(seed) == NOTHING and length_s(seed) < 2.0)
    found = pair(seed)
    assert content(found.disturbed) == content(found.clean)
    assert found.words == "nothing happens"


def test_lengths_are_spread_over_their_range() -> None:
    lengths = sorted(length_s(seed) for seed in range(400))
    assert LENGTH_S[0] <= lengths[0] < 0.55
    assert 11.0 < lengths[-1] <= LENGTH_S[1]
    assert lengths[200] == pytest.approx((LENGTH_S[0] * LENGTH_S[1]) ** 0.5, rel=0.2)


def test_repeat_differs_by_noise_alone() -> None:
    """Two clean windows of one design have the same label, and their throughput differs by less than 5 %."""
    seed = next(seed for seed in range(100) if length_s(seed) < 1.5)
    found = repeat(seed)
    assert 0.0 < abs(found.truth.throughput) < 0.05
    assert found.clean.window.label == found.disturbed.window.label
    assert content(found.clean) != content(found.disturbed)
