"""Tests of gpuwatch selftest: the noise floor between equal variants on a simulated GPU, stored and shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpuwatch import json_file
from gpuwatch.comparing import floor_record, selftest
from gpuwatch.comparing.floor_record import Floor
from gpuwatch.comparing.selftest import Pair
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.comparing.simulated import COPY, GEMM, SimulatedBlocks


def variants() -> Iterator[Pair]:
    while True:
        yield (lambda: None, lambda: None)


def test_equal_variants_differ_by_little_on_a_throttling_gpu() -> None:
    for kernel, most_ratio in ((GEMM, 0.002), (COPY, 0.0005)):
        timer = SimulatedBlocks({"a": kernel, "b": kernel}, seed=4)
        found = list(selftest.differences(timer, variants(), trials_count=8, seconds=1.0, warm_s=0.3))
        assert len(found) == 8
        assert 0 <= max(found) < most_ratio


def test_floor_is_exceeded_as_rarely_as_stated() -> None:
    """A further difference exceeds the largest of 19 with a probability of 1 in 20, here for Student's t distribution."""
    assert selftest.TRIALS_COUNT == 19
    rng = np.random.default_rng(7)
    rows = np.abs(rng.standard_t(3, (4000, selftest.TRIALS_COUNT + 1)))
    found = [selftest.floor_of(list(row[:-1])) for row in rows]
    assert {coverage_ratio for _, coverage_ratio in found} == {0.95}
    exceeded = np.mean([row[-1] > floor_ratio for row, (floor_ratio, _) in zip(rows, found, strict=True)])
    assert exceeded == pytest.approx(0.05, abs=0.012)


@pytest.mark.parametrize(
    ("count", "rank", "coverage"), [(1, 1, 0.5), (8, 8, 8 / 9), (19, 19, 0.95), (39, 38, 0.95), (100, 96, 96 / 101)]
)
def test_floor_of_any_count_has_its_coverage(count: int, rank: int, coverage: float) -> None:
    found = [number / 1000 for number in range(count, 0, -1)]
    assert selftest.floor_of(found) == pytest.approx((rank / 1000, coverage))


def test_floor_without_differences_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one difference"):
        selftest.floor_of([])


def test_floor_of_an_earlier_version_is_read(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """The floor of a record without coverage is the largest difference of the record's trials: 8 trials cover 89 %."""
    state = tmp_path / "state"
    state.mkdir()
    old = {"kind": "gemm", "shared": False, "floor_ratio": 0.0012, "trials_count": 8, "measured_wall_s": 1e9}
    json_file.write(state / floor_record.FILE, {"floors": {"GPU-1": {"gemm": old}}})
    assert floor_record.read_ratio(state, "GPU-1") == 0.0012
    assert "89%" in gpuwatch("selftest", "--show", "--state", str(state)).out
    data = gpuwatch("selftest", "--show", "--state", str(state), "--json").data
    check(data, "urn:gpuwatch:cli:1#/$defs/selftest")
    assert data["gpus"][0]["floors"][0]["coverage_ratio"] == pytest.approx(8 / 9)


def test_selftest_without_a_gpu_prints_one_line(gpuwatch: Gpuwatch) -> None:
    ended = gpuwatch("selftest")
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "expected torch and a GPU" in ended.err


def test_selftest_shows_stored_floors(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    where = ("--state", str(tmp_path / "state"))
    empty = gpuwatch("selftest", "--show", *where)
    assert (empty.code, empty.out) == (0, "")
    assert "no floor is stored yet" in empty.err
    floor_record.store(tmp_path / "state", "GPU-1", Floor(kind="gemm", floor_ratio=0.0012, trials_count=8, measured_wall_s=1e9))
    assert "0.120%" in gpuwatch("selftest", "--show", *where).out
    data = gpuwatch("selftest", "--show", *where, "--json").data
    check(data, "urn:gpuwatch:cli:1#/$defs/selftest")
    assert data["gpus"][0]["floors"][0]["floor_ratio"] == 0.0012


def test_selftest_escapes_control_characters_of_floors(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """Control characters in the floors' file are escaped, and a time beyond the calendar is printed in seconds."""
    state = tmp_path / "state"
    floor_record.store(state, "GPU-\x1b[31m", Floor(kind="\x1b[2Jk", floor_ratio=0.001, trials_count=8, measured_wall_s=1e300))
    ended = gpuwatch("selftest", "--show", "--state", str(state))
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.out
    assert "@1e+300" in ended.out


def test_selftest_refuses_wrong_seconds(gpuwatch: Gpuwatch) -> None:
    for seconds in ("nan", "0", "inf", "x"):
        ended = gpuwatch("selftest", "--seconds", seconds)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
