"""Tests that any bytes are read or refused in one line, because result files are untrusted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from annotate.judge import judge
from gpuwatch.errors import UsageError
from gpuwatch.results.readers import read_results
from gpuwatch.results.table_results import ColumnNames
from tests.examples import share_of
from tests.gpuwatch.results.test_result_readers import FILES, NVBENCH

SEEDS = [
    path.read_bytes()
    for path in (NVBENCH / "r3.json", FILES / "hyperfine.json", FILES / "nccl-tests.json", FILES / "kernelbench.json")
] + [(FILES / "google-benchmark.json").read_bytes()[:4000], (FILES / "kernelbot.txt").read_bytes()]
KEYS = (
    "benchmarks", "devices", "context", "results", "config", "duration", "completed", "ttfts", "itls", "start_times", "errors",
    "runs", "level1", "7", "states", "name", "summaries", "tag", "data", "value", "times", "command", "time_unit", "real_time",
    "iterations", "size", "out_of_place_per_iter", "times_us", "per_process_max_times_us", "mean", "benchmark.0.mean",
)  # fmt: skip
NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.booleans())
JSON = st.recursive(
    st.one_of(st.none(), NUMBERS, st.text(max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)),
    max_leaves=20,
)
QUICK = settings(max_examples=share_of(120), suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "r.json"


def survives(path: Path, columns: ColumnNames | None = None) -> None:
    refused = ""
    try:
        found = read_results(path, columns)
    except UsageError as error:
        refused = str(error)
    assert "\n" not in refused
    assert len(refused) < 1000
    for series in () if refused else found.series[:3]:
        judge(series.evidence())


@QUICK
@given(data=st.data())
def test_damaged_files_are_read_or_refused(place: Path, data: st.DataObject) -> None:
    blob = data.draw(st.sampled_from(SEEDS))
    begin = data.draw(st.integers(0, len(blob)))
    put = data.draw(st.one_of(st.binary(max_size=8), st.sampled_from([b"-1", b"1e308", b"null", b"[]", b"{}", b'"x"'])))
    place.write_bytes(blob[:begin] + put + blob[begin + data.draw(st.integers(0, 40)) :])
    survives(place)


@QUICK
@given(whole=JSON, top=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4))
def test_json_with_known_names_is_read_or_refused(place: Path, whole: Any, top: dict[str, Any]) -> None:
    place.write_text(json.dumps({"duration": 1.0, "completed": 1, **top} if top else whole))
    survives(place)


@QUICK
@given(values=st.lists(NUMBERS, min_size=1, max_size=12), begins=st.lists(NUMBERS, max_size=12))
def test_any_columns_are_judged_or_refused(place: Path, values: list[Any], begins: list[Any]) -> None:
    """Times of any size and order are refused, or make evidence that the judge can handle."""
    place.write_text(json.dumps({"t": values, "b": begins or values}))
    survives(place, ColumnNames("t", "t", "b"))


@pytest.mark.parametrize(
    ("states", "says"),
    [
        ("0," * 8_000_000 + "0", "expected at most 8000000 values, found 8000002"),
        (
            '{"name":"s","summaries":[' + "{}," * 400_000 + "{}]}",
            "s: expected at most 1048576 bytes of summaries, found 1200004",
        ),
        ('{"name":"s","summaries":3}', "Expected `array`, got `int`"),
    ],
    ids=["values", "summaries", "number"],
)
def test_oversized_nvbench_file_is_refused(place: Path, states: str, says: str) -> None:
    """A file is refused for too many values or bytes, which would take too much memory, and for summaries of another type."""
    place.write_text(f'{{"devices":[],"benchmarks":[{{"name":"b","states":[{states}]}}]}}')
    with pytest.raises(UsageError, match=re.escape(says)):
        read_results(place)


def test_nvbench_state_without_summaries_is_read(place: Path) -> None:
    states = '{"name":"s"},{"name":"t","summaries":null}'
    place.write_text(f'{{"devices":[],"benchmarks":[{{"name":"b","states":[{states}]}}]}}')
    assert [each.name for each in read_results(place).series] == ["b s", "b t"]


def test_oversized_file_is_refused_with_its_size(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(300 << 20)
    with pytest.raises(UsageError, match=r"expected at most 256 MiB, found 300 MiB$"):
        read_results(place)
    place.write_bytes(b"[" + b" " * (70 << 20))
    with pytest.raises(UsageError, match=r"expected JSON of at most 64 MiB, found 70 MiB$"):
        read_results(place, ColumnNames("t"))
    place.unlink()
