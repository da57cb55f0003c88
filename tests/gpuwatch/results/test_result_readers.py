"""Tests of readers of other tools' results; files/README.md names the source of each file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwatch.errors import UsageError
from gpuwatch.results.readers import is_result, read_results
from gpuwatch.results.table_results import ColumnNames

FILES = Path(__file__).parent / "files"
NVBENCH = FILES / "nvbench-h200"


def test_nvbench_gives_times_with_their_clocks() -> None:
    """Every sample of a real H200 run has a time and a clock; the means agree with NVBench's own."""
    found = read_results(NVBENCH / "r1.json")
    (series,) = found.series
    assert (found.tool, series.name, series.gpu, len(series.took_s)) == ("NVBench", "gemm Device=0", "NVIDIA H200", 8000)
    assert float(series.took_s.mean()) == pytest.approx(series.figures["mean"], rel=1e-5)
    assert series.sm_clock_mhz is not None
    assert 1400 < float(np.median(series.sm_clock_mhz)) < 1500
    assert series.at_ns is None
    assert "when each sample ran" in found.cannot


def test_nvbench_of_two_gpus_names_each() -> None:
    """In a file of an older NVBench, each state has its GPU's model, and only stated means."""
    found = read_results(FILES / "nvbench-gv100.json")
    assert [(each.name, each.gpu) for each in found.series] == [
        ("simple Device=0", "Quadro GV100"),
        ("simple Device=1", "Quadro GP100"),
    ]
    assert found.series[0].figures == {"mean": pytest.approx(1.00347e-3, rel=1e-5)}
    assert found.cannot[:2] == (
        "the clock of each sample: a newer NVBench writes it with --jsonbin",
        "single samples: run it with --jsonbin",
    )


def test_nvbench_without_samples_has_figures_and_a_remark(tmp_path: Path) -> None:
    """The JSON alone has the stated figures, and a remark names the missing file."""
    (tmp_path / "r1.json").write_bytes((NVBENCH / "r1.json").read_bytes())
    found = read_results(tmp_path / "r1.json")
    assert not len(found.series[0].took_s)
    assert found.series[0].figures["mean"] == pytest.approx(195.7e-6, rel=1e-3)
    assert any("r1.json-bin/0.bin is missing next to the file" in each for each in found.series[0].remarks)
    assert "single samples: run it with --jsonbin" in found.cannot


@pytest.mark.parametrize("name", ["/etc/passwd", "../r1.json", "r1.json-bin/../../outside"])
def test_nvbench_opens_no_file_outside_its_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "sent"
    folder.mkdir()
    (tmp_path / "outside").write_bytes(b"\0" * 4)
    text = (NVBENCH / "r1.json").read_text().replace("r1.json-bin/0.bin", name)
    (folder / "r1.json").write_text(text)
    with pytest.raises(UsageError, match="expected samples in a folder next to the file"):
        read_results(folder / "r1.json")


def test_nvbench_refuses_samples_of_another_count(tmp_path: Path) -> None:
    (tmp_path / "r1.json-bin").mkdir()
    (tmp_path / "r1.json-bin" / "0.bin").write_bytes(b"\0" * 12)
    (tmp_path / "r1.json").write_bytes((NVBENCH / "r1.json").read_bytes())
    with pytest.raises(UsageError, match="expected 8000 values, found 3"):
        read_results(tmp_path / "r1.json")


def test_serving_requests_have_monotonic_start_times() -> None:
    """Start times, times to the first token and latencies of 229 requests are read in order."""
    requests = read_results(FILES / "serving-h200.json").requests
    assert requests is not None
    assert requests.at_ns is not None
    assert (len(requests.ttft_s), requests.failed_count) == (229, 0)
    assert requests.at_ns[0] == 160_127_407_571
    assert (np.diff(requests.at_ns) > 0).all()
    assert (requests.latency_s > requests.ttft_s).all()
    assert float(np.median(requests.ttft_s)) == pytest.approx(9.54e-3, rel=1e-2)


def test_serving_leaves_failed_requests_out(tmp_path: Path) -> None:
    """Requests come in any order; requests with an error or without a first token are counted and left out."""
    times = {"start_times": [5.0, 3.0, 4.0, 6.0], "ttfts": [0.1, 0.2, 0.3, 0.0], "itls": [[0.1, 0.1], [], [], []]}
    path = write(tmp_path, {"duration": 4.0, "completed": 2, "errors": ["", "", "refused", ""]} | times)
    requests = read_results(path).requests
    assert requests is not None
    assert requests.at_ns is not None
    assert (requests.at_ns.tolist(), requests.failed_count) == ([3_000_000_000, 5_000_000_000], 2)
    assert requests.latency_s.tolist() == pytest.approx([0.2, 0.3])


def test_serving_takes_the_last_of_appended_results(tmp_path: Path) -> None:
    """The last line counts in a file of SGLang, which appends one line per run and writes no start times."""
    path = tmp_path / "sglang.jsonl"
    lines = [json.dumps({"duration": 4.0, "completed": 1, "ttfts": [ttft], "itls": [[0.5]]}) for ttft in (0.1, 0.2)]
    path.write_text("\n".join(lines) + "\n")
    found = read_results(path)
    assert found.requests is not None
    assert (found.tool, found.requests.ttft_s.tolist(), found.requests.at_ns) == ("SGLang bench_serving", [0.2], None)
    assert any("SGLang writes no start times" in each for each in found.cannot)


def test_serving_without_details_keeps_the_means(tmp_path: Path) -> None:
    found = read_results(write(tmp_path, {"duration": 4.0, "completed": 9, "mean_ttft_ms": 41.5, "date": "20261123-040000"}))
    assert found.requests is None
    assert found.series[0].figures == {"mean": pytest.approx(0.0415)}
    assert found.written_s is not None
    assert any("--save-detailed" in each for each in found.cannot)


def test_hyperfine_gives_the_times_of_each_command() -> None:
    found = read_results(FILES / "hyperfine.json")
    assert [(each.name, len(each.took_s)) for each in found.series] == [("sleep 0.01", 8), ("sleep 0.02", 8)]
    assert float(found.series[0].took_s.mean()) == pytest.approx(found.series[0].figures["mean"])


def test_google_benchmark_groups_repetitions() -> None:
    """Repetitions of one name form one series in seconds without aggregates; a skipped benchmark has a reason."""
    by_name = {each.name: each for each in read_results(FILES / "google-benchmark.json").series}
    assert len(by_name["BM_sum/1000"].took_s) == 12
    assert by_name["BM_sum/1000"].calls_count == 4155
    assert float(np.median(by_name["BM_sum/1000"].took_s)) == pytest.approx(3.31e-6, rel=0.01)
    assert by_name["BM_skip"].remarks == ("skipped: no GPU",)
    assert by_name["BM_manual/iterations:20/manual_time"].took_s.tolist() == pytest.approx([1e-3] * 12)


def test_nccl_tests_names_the_slowest_process() -> None:
    """Times, PIDs, interval and slowest process are read; the environment in the file is not."""
    found = read_results(FILES / "nccl-tests.json")
    series = found.series[0]
    assert series.name == "1048576 B float sum out-of-place"
    assert series.took_s.tolist() == pytest.approx([30e-6, 31e-6, 31e-6, 34e-6])
    assert series.remarks == ("slowest process: row 1, pid 4002 on GPU 0000:43:00, median +1.6% against the processes' median",)
    assert found.pids == (4001, 4002)
    assert found.wall_s is not None
    assert found.wall_s[1] - found.wall_s[0] == 10.0
    assert "hunter2" not in repr(found)


def test_kernelbench_reads_baselines_and_evaluations(tmp_path: Path) -> None:
    """Milliseconds of baselines and evaluations become seconds; an incorrect, unmeasured sample has a remark and no figures."""
    found = read_results(FILES / "kernelbench.json")
    assert found.series[0].name == "level1 1_Square_matrix_multiplication_.py"
    assert found.series[0].figures["mean"] == pytest.approx(2.66e-3)
    assert found.series[0].gpu == "NVIDIA H100 80GB HBM3"
    stats = {"mean": 1.5, "std": 0.1, "min": 1.4, "max": 1.7, "num_trials": 100, "hardware": "NVIDIA H200"}
    samples = [{"sample_id": 0, "runtime_stats": stats}, {"sample_id": 1, "correctness": False, "runtime_stats": {}}]
    evaluated = read_results(write(tmp_path, {"7": samples})).series
    assert [each.name for each in evaluated] == ["problem 7 sample 0", "problem 7 sample 1"]
    assert evaluated[0].figures["max"] == pytest.approx(1.7e-3)
    assert not evaluated[1].figures
    assert evaluated[1].remarks == ("incorrect",)


def test_kernelbot_reads_lines_and_json(tmp_path: Path) -> None:
    lines = read_results(FILES / "kernelbot.txt")
    first, second = lines.series
    assert first.name == "benchmark 0 m: 1024; n: 1024; seed: 1"
    assert first.figures == pytest.approx({"mean": 1.5e-3, "stdev": 2e-6, "min": 1.49e-3, "max": 1.51e-3})
    assert second.remarks == ("failed: mismatch found",)
    flat = {"benchmark.0.spec": "m: 1", "benchmark.0.mean": "1500000.0"}
    assert read_results(write(tmp_path, flat)).series[0].figures["mean"] == pytest.approx(1.5e-3)


def test_table_reads_named_columns_in_their_units(tmp_path: Path) -> None:
    """Units come from the end of the name or follow a colon; start times become nanoseconds."""
    path = tmp_path / "t.csv"
    path.write_text("took_ms,sm,when\n1.5,1400,10.5\n2.5,1410,10.6\n")
    (series,) = read_results(path, ColumnNames("took_ms", "sm", "when:s")).series
    assert series.took_s.tolist() == pytest.approx([1.5e-3, 2.5e-3])
    assert series.at_ns is not None
    assert series.at_ns.tolist() == [10_500_000_000, 10_600_000_000]
    assert series.sm_clock_mhz is not None
    assert series.sm_clock_mhz.tolist() == [1400.0, 1410.0]
    (microseconds,) = read_results(path, ColumnNames("sm:us")).series
    assert microseconds.took_s.tolist() == pytest.approx([1.4e-3, 1.41e-3])


@pytest.mark.parametrize(
    ("whole", "names"),
    [
        ([{"t": 1.0}, {"t": 2.0}], "t"),
        ({"a": {"times": [1.0, 2.0]}}, "a.times"),
        ({"runs": [{"x": {"t": 1.0}}, {"x": {"t": 2.0}}]}, "runs.x.t"),
        ({"runs": [[9.0], [1.0, 2.0]]}, "runs.1"),
    ],
)
def test_table_follows_a_dotted_path_in_json(tmp_path: Path, whole: object, names: str) -> None:
    (series,) = read_results(write(tmp_path, whole), ColumnNames(names)).series
    assert series.took_s.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("text", "names", "words"),
    [
        ("a,b\n1,2\n", "c", "--times: expected one of the columns a, b, found 'c'"),
        ("a\nx\n", "a", "row 2, a: expected a number, found 'x'"),
        ("a\n", "a", "expected times in a, found none"),
        ('{"a": [1, true]}', "a", "expected numbers, found 'True'"),
        ('{"a": 1}', "a.b", "--times a.b: expected 'b', found int"),
        ("[" * 100_000, "a", "found deeper nesting"),
    ],
)
def test_table_errors_name_place_and_value(tmp_path: Path, text: str, names: str, words: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_results(path, ColumnNames(names))
    assert words in str(caught.value)


def test_reading_refuses_other_files(tmp_path: Path) -> None:
    """Folders, unknown JSON and damaged files are refused; errors about the content name the formats."""
    for text, words in (("{}", "an empty object"), ('{"x": 1}', "found JSON with x"), ("{", "or --times COLUMN")):
        (tmp_path / "f.json").write_text(text)
        with pytest.raises(UsageError) as caught:
            read_results(tmp_path / "f.json")
        assert words in str(caught.value)
        assert "hyperfine" in str(caught.value)
    with pytest.raises(UsageError, match="nothing to read: Is a directory"):
        read_results(tmp_path)
    assert is_result(FILES / "kernelbot.txt")
    assert not is_result(tmp_path / "none")


def write(folder: Path, data: Any) -> Path:
    path = folder / "r.json"
    path.write_text(json.dumps(data))
    return path
