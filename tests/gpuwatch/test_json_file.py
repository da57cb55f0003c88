"""Tests of JSON files in the state folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch import json_file
from gpuwatch.comparing import floor_record
from gpuwatch.measuring import canary_record


def test_read_returns_the_written_data(tmp_path: Path) -> None:
    json_file.write(tmp_path / "new" / "a.json", {"a": [1, 2.5, -3, 1e300, None, "x"]})
    assert json_file.read(tmp_path / "new" / "a.json") == {"schema": 1, "a": [1, 2.5, -3, 1e300, None, "x"]}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "7", '{"schema":2}', "[" * 100_000, '{"schema":1,"a":NaN}', '{"schema":1,"a":1e999}',
        '{"schema":1,"a":-Infinity}', '{"schema":1,"a":' + "9" * 400 + "}", "\udcff", " " * (json_file.MOST_BYTES + 1),
    ],
)  # fmt: skip
def test_read_of_a_damaged_file_is_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert json_file.read(tmp_path / "a.json") == {}


@given(st.binary(max_size=80))
def test_read_of_any_bytes_returns_a_dict(data: bytes) -> None:
    path = Path(tempfile.gettempdir()) / f"gpuwatch-kept-{os.getpid()}"
    path.write_bytes(b'{"schema":1,"a":' + data)
    try:
        assert isinstance(json_file.read(path), dict)
    finally:
        path.unlink()


def test_read_of_a_pipe_device_or_folder_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert json_file.read(tmp_path / "pipe") == json_file.read(tmp_path / "zero") == json_file.read(tmp_path) == {}


def test_write_does_not_follow_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for name in ("a.json", f"a.json.{os.getpid()}"):
        (tmp_path / name).symlink_to(precious)
    json_file.write(tmp_path / "a.json", {"a": 1})
    assert precious.read_text() == "mine"
    assert json_file.read(tmp_path / "a.json")["a"] == 1


def test_damaged_canaries_and_floors_are_ignored(tmp_path: Path) -> None:
    records = '[{"clock_mhz":1e999},{"clock_mhz":' + "9" * 400 + '},{"clock_mhz":"x"},{"clock_mhz":true},7]'
    for text in (records, records.replace("1e999", "-5").replace("9" * 400, "null")):
        (tmp_path / canary_record.FILE).write_text('{"schema":1,"canaries":{"GPU-1":' + text + "}}")
        assert "canary_record_clock_mhz" not in canary_record.facts(tmp_path, "GPU-1", clock_mhz=1900.0)
        canary_record.store(tmp_path, "GPU-1", clock_mhz=1900.0, copy_bytes_count=None)
    floor = '{"kind":"gemm","floor_ratio":1e999,"trials_count":1e999,"measured_wall_s":0}'
    (tmp_path / floor_record.FILE).write_text('{"schema":1,"floors":{"GPU-1":{"gemm":' + floor + "}}}")
    assert floor_record.read_ratio(tmp_path, "GPU-1") is None
