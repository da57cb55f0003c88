"""Tests that recordings of every format become evidence, and that other files are errors of one line."""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import Evidence, Reason
from gpuwatch.errors import UsageError
from gpuwatch.sources import recordings
from gpuwatch.sources.simulated import simulate
from tests.examples import share_of
from tests.gpuwatch.sources.logs import HEADER, TRACES, log_of, row


def loaded(folder: Path, text: str | bytes, *, query: str | None = None) -> tuple[Evidence, ...]:
    path = folder / "recording.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return recordings.load(path, query=query)


def refused(folder: Path, text: str | bytes) -> str:
    with pytest.raises(UsageError) as caught:
        loaded(folder, text)
    message = str(caught.value)
    assert "\n" not in message
    assert "expected" in message
    assert "found" in message
    return message


def test_archive_gives_one_piece_of_evidence_per_mark() -> None:
    pieces = {piece.window.label: piece for piece in recordings.load(TRACES / "scenarios.npz")}
    assert len(pieces) == 16
    gemm = pieces["power_cap_gemm16k"]
    assert gemm.device is not None
    assert gemm.device.name == "NVIDIA H200"
    assert gemm.window.length_s == pytest.approx(10.0, abs=0.01)
    assert gemm.timings is not None
    assert np.median(gemm.timings.took_s) == pytest.approx(13.07e-3, rel=0.01)
    assert np.nanmedian(gemm.within("sm_clock_mhz").values) == 1455
    assert np.nanmedian(gemm.within("power_w").values) == pytest.approx(692, abs=2)
    capped = gemm.increase("power_violation_ns")
    assert capped is not None
    assert capped.ratio == pytest.approx(1.0, abs=0.01)
    assert pieces["idle"].timings is None


def test_archive_evidence_starts_5_s_before_the_window() -> None:
    piece = next(p for p in recordings.load(TRACES / "scenarios.npz") if p.window.label == "clean_gemm4k")
    at_ns = piece.trace.column("power_w").at_ns
    assert piece.window.begin_ns - 5e9 <= at_ns[0] < piece.window.begin_ns - 4.9e9
    assert piece.window.end_ns < at_ns[-1] <= piece.window.end_ns + 0.5e9


def test_whole_archive_is_one_piece_of_evidence() -> None:
    (piece,) = recordings.whole(TRACES / "scenarios.npz")
    assert len(piece.trace.column("power_w")) == 15_140
    assert piece.window.length_s > 95


def test_smi_log_becomes_evidence(tmp_path: Path) -> None:
    (piece,) = loaded(tmp_path, log_of(rows=101))
    assert piece.device is not None
    assert (piece.device.name, piece.device.simulated) == ("NVIDIA H200", False)
    assert piece.window.length_s == pytest.approx(2.0)
    assert set(piece.trace.columns) == {
        "sm_clock_mhz", "mem_clock_mhz", "power_average_w", "power_w", "temperature_c", "utilization_ratio",
        "memory_used_bytes", "event_reasons_mask", "power_limit_w",
    }  # fmt: skip
    assert piece.trace.column("event_reasons_mask").values[0] == Reason.SW_POWER_CAP
    assert piece.trace.column("utilization_ratio").values[0] == 1.0
    assert piece.trace.column("memory_used_bytes").values[0] == 3012 * 2**20
    assert piece.trace.column("power_average_w").values[7] == pytest.approx(691.07)


def test_smi_log_of_two_gpus_gives_two_pieces(tmp_path: Path) -> None:
    pieces = loaded(tmp_path, log_of(gpus=2, rows=30))
    assert [len(piece.trace.column("power_w")) for piece in pieces] == [30, 30]
    assert len({piece.device.uuid for piece in pieces if piece.device}) == 2


def test_smi_log_times_are_nanoseconds_since_the_epoch(tmp_path: Path) -> None:
    (piece,) = loaded(tmp_path, log_of(rows=2))
    from datetime import datetime

    first = datetime(2026, 11, 21, 8, 15).astimezone()
    assert piece.window.begin_ns == int(first.timestamp()) * 10**9
    assert piece.window.end_ns - piece.window.begin_ns == 20_000_000


@pytest.mark.parametrize("absent", ["[N/A]", "[Not Supported]", "[Unknown Error]", "[GPU is lost]", "N/A", ""])
def test_smi_log_cells_without_a_value_are_unobserved(tmp_path: Path, absent: str) -> None:
    text = f"timestamp, power.draw [W], temperature.gpu\n2026/11/21 08:15:02.123, {absent}, 58\n"
    (piece,) = loaded(tmp_path, text)
    assert not piece.observes("power_average_w")
    assert piece.observes("temperature_c")


def test_smi_log_missing_cell_is_nan(tmp_path: Path) -> None:
    text = "timestamp, power.draw [W]\n" + "".join(
        f"2026/11/21 08:15:0{i}.000, {cell}\n" for i, cell in enumerate(("1.00 W", "[N/A]", "3.00 W"))
    )
    (piece,) = loaded(tmp_path, text)
    values = piece.trace.column("power_average_w").values
    assert (values[0], values[2]) == (1.0, 3.0)
    assert math.isnan(values[1])


def test_smi_log_without_units_has_equal_values(tmp_path: Path) -> None:
    bare = log_of().replace(" MHz,", ",").replace(" W", "").replace(" %,", ",").replace(" MiB,", ",")
    (with_units,), (without,) = loaded(tmp_path, log_of()), loaded(tmp_path, bare)
    for name, column in with_units.trace.columns.items():
        assert (column.values == without.trace.column(name).values).all()


def test_smi_log_without_a_header_needs_a_query(tmp_path: Path) -> None:
    rows = log_of().partition("\n")[2]
    assert "--query" in refused(tmp_path, rows)
    query = ",".join(cell.partition("[")[0].strip() for cell in HEADER.split(","))
    (piece,) = loaded(tmp_path, rows, query=query)
    assert len(piece.trace.column("power_w")) == 50


def test_smi_log_ignores_crlf_bom_and_repeated_header(tmp_path: Path) -> None:
    text = log_of(rows=3) + HEADER + "\n" + row(3) + "\n"
    (piece,) = loaded(tmp_path, "\ufeff" + text.replace("\n", "\r\n"))
    assert len(piece.trace.column("power_w")) == 4


@pytest.mark.parametrize("kept", [1, 20, 60, 120])
def test_smi_log_incomplete_last_line_is_dropped(tmp_path: Path, kept: int) -> None:
    (piece,) = loaded(tmp_path, log_of(rows=3) + row(3)[:kept])
    assert len(piece.trace.column("power_w")) == 3


def test_smi_log_reason_columns_become_a_mask(tmp_path: Path) -> None:
    active = {
        "sw_power_cap": "Active", "hw_slowdown": "Not Active", "sync_boost": "Not Active", "sw_thermal_slowdown": "Active",
        "hw_thermal_slowdown": "Not Active", "hw_power_brake_slowdown": "Not Active",
    }  # fmt: skip
    header = ", ".join(f"clocks_event_reasons.{name}" for name in active)
    cells = ", ".join(active.values())
    (piece,) = loaded(tmp_path, f"timestamp, {header}\n2026/11/21 08:15:02.123, {cells}\n")
    assert piece.trace.column("event_reasons_mask").values[0] == Reason.SW_POWER_CAP | Reason.SW_THERMAL


def test_smi_log_some_reason_columns_give_no_mask(tmp_path: Path) -> None:
    text = "timestamp, power.draw [W], clocks_throttle_reasons.sw_power_cap\n2026/11/21 08:15:02.123, 1 W, Not Active\n"
    (piece,) = loaded(tmp_path, text)
    assert not piece.observes("event_reasons_mask")


def test_smi_log_reads_old_names_and_counters(tmp_path: Path) -> None:
    text = (
        "timestamp, clocks_throttle_reasons.active, clocks_event_reasons_counters.sw_power_cap [us]\n"
        "2026/11/21 08:15:02.123, 0x0000000000000004, 1500 us\n"
    )
    (piece,) = loaded(tmp_path, text)
    assert piece.trace.column("event_reasons_mask").values[0] == 4
    assert piece.trace.column("power_cap_ns").values[0] == 1_500_000


def test_smi_log_refresh_is_the_period_of_a_slow_log(tmp_path: Path) -> None:
    text = HEADER + "\n" + "".join(row(i, period_ms=1000) + "\n" for i in range(10))
    (piece,) = loaded(tmp_path, text)
    assert piece.trace.refresh_of_ns("power_w") == 1_000_000_000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty file"),
        ("\n\n", "found none"),
        ("<!DOCTYPE html><html>\n<body>404</body>\n", "found an HTML page"),
        ("hello world\n", "line 1"),
        ("time, watts\n1, 2\n", "line 1"),
        ("timestamp, name\n2026/11/21 08:15:02.123, NVIDIA H200\n", "line 1"),
        (HEADER + "\n", "found none"),
        (HEADER.replace("power.draw [W]", "power.draw [mW]") + "\n" + row(0) + "\n", "power.draw in [W], found [mW]"),
        (HEADER + "\n" + row(0).replace("691.00 W", "-5.00 W") + "\n", "line 2, power.draw: expected a number of at least 0"),
        (HEADER + "\n" + row(0).replace("691.00 W", "691.00 mW") + "\n", "line 2, power.draw: expected a number of W"),
        (HEADER + "\n" + row(0).replace("691.00 W", "nan") + "\n", "line 2, power.draw"),
        (HEADER + "\n" + row(0).replace("100 %", "170 %") + "\n", "at most 100 %"),
        (HEADER + "\n" + row(0).replace("0x0000000000000004", "4") + "\n", "line 2, clocks_event_reasons.active"),
        (HEADER + "\n" + row(1) + "\n" + row(0) + "\n", "line 3: expected a time no earlier"),
        (HEADER + "\n" + row(0).replace("2026/11/21", "2026/13/21") + "\n", "line 2, timestamp"),
        (HEADER + "\n" + row(0).replace("2026/11/21 08", "yesterday") + "\n", "line 2, timestamp"),
        (HEADER + "\n" + row(0) + "\n" + row(1)[:60] + "\n" + row(2) + "\n", "line 3: expected 12 columns"),
        (HEADER + "\n" + row(0) + ", 1\n", "line 2: expected 12 columns as in the header, found 13"),
        (log_of(rows=2) + "timestamp, power.draw [W]\n" + row(2) + "\n", "line 4"),
        (b"timestamp, power.draw [W]\n" + b"x" * 5000 + b"\0\n", "NUL"),
        (b"\0\0\0\0\0\0", "another format"),
        ("timestamp, power.draw [W]\n" + "1" * 200_000 + "\n", "line 2"),
        (HEADER.encode() + b"\n\xff\xfe\xfa\n", "line 2"),
        ("timestamp, power.draw [W]\n".encode("utf-16"), "UTF-16"),
        (b"PK\x03\x04 torn", "archive"),
    ],
)  # fmt: skip
def test_invalid_recording_error_names_the_fault(tmp_path: Path, text: str | bytes, says: str) -> None:
    assert says in refused(tmp_path, text)


def test_recording_error_for_a_missing_file_or_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.csv", tmp_path):
        with pytest.raises(UsageError, match=r"nothing to read"):
            recordings.load(path)


def archive(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type] # numpy stores any object
    return buffer.getvalue()


TABLE = np.array([[1e9, 100.0], [2e9, 110.0]])
COLS = np.array(["t_ns", "power_mw"])
MARK = np.array([1_000_000_000, 2_000_000_000])


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"telemetry": TABLE, "mark_a": MARK}, "telemetry and cols"),
        ({"telemetry": TABLE, "cols": COLS}, "expected marks"),
        ({"telemetry": TABLE[:0], "cols": COLS, "mark_a": MARK}, "empty telemetry"),
        ({"telemetry": TABLE[::-1], "cols": COLS, "mark_a": MARK}, "row 1: expected a time no earlier"),
        ({"telemetry": -TABLE[:, ::-1], "cols": COLS[::-1], "mark_a": MARK}, "expected a time no earlier"),
        ({"telemetry": TABLE * [1, -1], "cols": COLS, "mark_a": MARK}, "a number of at least 0"),
        ({"telemetry": TABLE, "cols": COLS[:1], "mark_a": MARK}, "one column for each"),
        ({"telemetry": TABLE, "cols": np.array(["a", "b"]), "mark_a": MARK}, "t_ns among them"),
        ({"telemetry": TABLE.astype(str), "cols": COLS, "mark_a": MARK}, "table"),
        ({"telemetry": TABLE, "cols": COLS, "mark_a": MARK[::-1]}, "start before end"),
        ({"telemetry": TABLE, "cols": COLS, "mark_a": MARK, "timing_a": np.zeros(3)}, "timing_a"),
        ({"telemetry": TABLE, "cols": COLS, "mark_a": MARK, "device": np.array("{")}, "JSON"),
        ({"telemetry": TABLE, "cols": np.array([{}], object), "mark_a": MARK}, "cannot be read"),
    ],
)
def test_invalid_archive_is_a_one_line_error(tmp_path: Path, arrays: dict[str, object], says: str) -> None:
    assert says in refused(tmp_path, archive(**arrays))


@pytest.mark.parametrize("kept", [10, 100, 300, 600])
def test_truncated_archive_is_a_one_line_error(tmp_path: Path, kept: int) -> None:
    whole = archive(telemetry=TABLE, cols=COLS, mark_a=MARK)
    refused(tmp_path, whole[:kept])


def test_damaged_archive_is_a_one_line_error(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("telemetry.npy", b"x" * 3000)
        made.writestr("cols.npy", b"")
    refused(tmp_path, buffer.getvalue())


def test_capsule_recording_is_loaded(tmp_path: Path) -> None:
    """Windows and devices of a packed recording survive a round trip."""
    from annotate.capsule.pack import pack

    made = simulate("steady-copy,neighbour")
    (tmp_path / "own").write_bytes(pack(made))
    back = recordings.load(tmp_path / "own")
    assert [piece.window for piece in back] == [piece.window for piece in made]
    assert [piece.device for piece in back] == [piece.device for piece in made]


def test_merged_joins_pieces_of_one_gpu() -> None:
    (piece,) = simulate("steady-copy")
    middle_ns = (piece.window.begin_ns + piece.window.end_ns) // 2
    (joined,) = recordings.merged([piece.part(piece.window.begin_ns, middle_ns), piece.part(middle_ns, piece.window.end_ns)])
    for name, column in piece.trace.columns.items():
        assert (joined.trace.column(name).at_ns == np.unique(column.at_ns)).all()
    assert joined.trace.process_lists == piece.trace.process_lists


CELLS = st.one_of(
    st.text(max_size=12).filter(lambda text: "\n" not in text and "\r" not in text),
    st.sampled_from(["[N/A]", "58", "-1", "1e9", "0x4", "1980 MHz", "691.2 W", "Active", "2026/11/21 08:15:02.123"]),
)


@settings(max_examples=share_of(60))
@given(st.lists(st.lists(CELLS, min_size=1, max_size=14), max_size=4))
def test_smi_log_any_line_is_read_or_a_usage_error(tmp_path_factory: pytest.TempPathFactory, lines: list[list[str]]) -> None:
    text = HEADER + "\n" + row(0) + "\n" + "".join(", ".join(cells) + "\n" for cells in lines)
    message = ""
    try:
        message = str(len(loaded(tmp_path_factory.mktemp("log"), text)))
    except UsageError as error:
        message = str(error)
    assert message
    assert "\n" not in message


@settings(max_examples=share_of(60))
@given(st.binary(max_size=200))
def test_recording_of_random_bytes_is_a_usage_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    with pytest.raises(UsageError):
        loaded(tmp_path_factory.mktemp("log"), data)


@settings(max_examples=share_of(40))
@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 100), st.integers(0, 999_999)), min_size=1, max_size=20))
def test_smi_log_numbers_survive_a_round_trip(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]]
) -> None:
    lines = [
        f"2026/11/21 08:15:{i:02d}.5, {mhz} MHz, {percent} %, {milliwatt / 1000:.2f} W"
        for i, (mhz, percent, milliwatt) in enumerate(rows)
    ]
    text = "\n".join(["timestamp, clocks.sm [MHz], utilization.gpu [%], power.draw [W]", *lines]) + "\n"
    (piece,) = loaded(tmp_path_factory.mktemp("log"), text)
    assert piece.trace.column("sm_clock_mhz").values.tolist() == [mhz for mhz, _, _ in rows]
    assert piece.trace.column("utilization_ratio").values.tolist() == [percent * 0.01 for _, percent, _ in rows]
    assert piece.trace.column("power_average_w").values == pytest.approx([w / 1000 for _, _, w in rows], abs=0.0051)


def test_recording_error_for_a_report_names_verify(tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    page.write_text("<!DOCTYPE html><html></html>")
    with pytest.raises(UsageError, match="gpuwatch verify"):
        recordings.load(page)
