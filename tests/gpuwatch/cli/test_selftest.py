"""gpuwatch selftest: the floor between equal variants, measured on a simulated GPU, kept, shown; refused without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpuwatch.comparing import floor_record, selftest
from gpuwatch.comparing.floor_record import Floor
from gpuwatch.comparing.selftest import Pair
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.comparing.simulated import COPY, GEMM, SimulatedBlocks


def variants() -> Iterator[Pair]:
    while True:
        yield (lambda: None, lambda: None)


def test_equal_arms_differ_by_little_on_a_gpu_that_throttles() -> None:
    for kernel, most_ratio in ((GEMM, 0.002), (COPY, 0.0005)):
        timer = SimulatedBlocks({"a": kernel, "b": kernel}, seed=4)
        found = list(selftest.differences(timer, variants(), trials_count=8, seconds=1.0, warm_s=0.3))
        assert len(found) == 8
        assert 0 <= max(found) < most_ratio


def test_without_a_gpu_it_says_so_in_one_line(gpuwatch: Gpuwatch) -> None:
    ended = gpuwatch("selftest")
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "expected torch and a GPU" in ended.err


def test_what_is_kept_is_shown(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    where = ("--state", str(tmp_path / "state"))
    empty = gpuwatch("selftest", "--show", *where)
    assert (empty.code, empty.out) == (0, "")
    assert "no floor is kept yet" in empty.err
    floor_record.store(tmp_path / "state", "GPU-1", Floor(kind="gemm", floor_ratio=0.0012, trials_count=8, measured_wall_s=1e9))
    assert "0.120%" in gpuwatch("selftest", "--show", *where).out
    data = gpuwatch("selftest", "--show", *where, "--json").data
    check(data, "urn:gpuwatch:cli:1#/$defs/selftest")
    assert data["gpus"][0]["floors"][0]["floor_ratio"] == 0.0012


def test_selftest_shows_hostile_floors_without_harm(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """Whatever somebody put into the file of floors is shown without harm."""
    state = tmp_path / "state"
    floor_record.store(state, "GPU-\x1b[31m", Floor(kind="\x1b[2Jk", floor_ratio=0.001, trials_count=8, measured_wall_s=1e300))
    ended = gpuwatch("selftest", "--show", "--state", str(state))
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.out
    assert "@1e+300" in ended.out


def test_seconds_must_be_some(gpuwatch: Gpuwatch) -> None:
    for seconds in ("nan", "0", "inf", "x"):
        ended = gpuwatch("selftest", "--seconds", seconds)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
