"""Tests of gpuwatch judge, compare and run --times on result files of other tools."""

from __future__ import annotations

import json
import shutil
import time
from datetime import datetime
from pathlib import Path

import pytest

from gpuwatch.config.settings import Settings
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.cli.test_run import run
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.programs import program
from tests.gpuwatch.results.test_result_readers import FILES, NVBENCH
from tests.waiting import sample_for

R1, R3 = str(NVBENCH / "r1.json"), str(NVBENCH / "r3.json")


def test_judge_puts_nvbench_at_one_clock(gpuwatch: Gpuwatch) -> None:
    """Two runs of one kernel differ by 4 % in raw medians, but at most 0.1 % at one clock."""
    medians, at_clock = [], []
    for file in (R1, R3):
        data = gpuwatch("judge", file, "--json").data
        check(data, "urn:gpuwatch:cli:1#/$defs/judged_results")
        (series,) = data["series"]
        numbers = {each["number"]: each for each in series["verdict"]["budget"]["numbers"]}
        medians.append(numbers["median"]["value"])
        at_clock.append(numbers["median_at_clock"]["value"])
        assert numbers["median_at_clock"]["clock_mhz"] == 1500.0
        assert data["not_placed"]
    assert medians[1] / medians[0] == pytest.approx(0.958, abs=0.002)
    assert at_clock[1] / at_clock[0] == pytest.approx(1.0, abs=0.001)
    text = gpuwatch("judge", R1)
    assert "189.8 µs at 1500 MHz ±0.06" in text.out
    assert "the file cannot show when each sample ran" in text.out
    assert "nothing outside the file supports these times" in text.out


def test_compare_reads_result_files(gpuwatch: Gpuwatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs are inconclusive by default and the same with a card spread of 0.1 %; means alone are inconclusive."""
    assert gpuwatch("compare", R1, R3).out.startswith("INCONCLUSIVE")
    monkeypatch.setenv("GPUWATCH_CARD_SPREAD", "0.1 %")
    ended = gpuwatch("compare", R1, R3, "--json")
    check(ended.data, "urn:gpuwatch:cli:1#/$defs/compare")
    (found,) = ended.data["comparisons"]
    assert (found["decision"], found["one_clock"]["a_mhz"]) == ("same", 1483.0)
    assert found["ratio"]["low_ratio"] > 0.995
    assert any(each.startswith("no telemetry in r1.json and r3.json") for each in found["reasons"])
    assert any("no card is named" in each for each in found["reasons"])
    shutil.copy(R1, tmp_path / "means.json")
    means = gpuwatch("compare", str(tmp_path / "means.json"), R3)
    assert means.out.startswith("INCONCLUSIVE")
    assert "the stated means differ by -3.8" in means.out


def test_compare_of_many_pairs_prints_one_line_each(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """More than eight pairs are printed as a table."""
    results = [{"command": f"step {number}", "times": [], "mean": 1.0 + number} for number in range(9)]
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"results": results}))
    lines = gpuwatch("compare", str(path), str(path)).out.splitlines()
    assert len(lines) == 10
    assert lines[1].split()[:3] == ["INCONCLUSIVE", "step", "0"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hyperfine.json", "the time is that of the whole command"),
        ("google-benchmark.json", "single iterations: an entry is the mean of one repetition"),
        ("kernelbench.json", "single times: the file holds mean, extremes and deviation"),
        ("kernelbot.txt", "failed: mismatch found"),
        ("nccl-tests.json", "slowest process: row 1, pid 4002 on GPU 0000:43:00"),
    ],
)
def test_judge_prints_the_notes_of_a_result_file(gpuwatch: Gpuwatch, name: str, words: str) -> None:
    ended = gpuwatch("judge", str(FILES / name))
    assert (ended.code, "hunter2" in ended.out) == (0, False)
    assert words in ended.out or "start and its imports included" in ended.out
    assert gpuwatch("judge", str(FILES / name), "--fail-on", "unproven").code == 12


def serving(path: Path, seconds: float) -> None:
    """Write a vLLM result file of requests made during this many seconds."""
    begins, ttfts, itls = [], [], []
    end_s = time.perf_counter() + seconds
    while (begin_s := time.perf_counter()) < end_s:
        sample_for(0.02)
        begins.append(begin_s)
        ttfts.append(0.01)
        itls.append([0.005])
    whole = {
        "date": f"{datetime.now().astimezone():%Y%m%d-%H%M%S}",
        "duration": seconds,
        "completed": len(begins),
        "errors": [""] * len(begins),
    }
    path.write_text(json.dumps(whole | {"start_times": begins, "ttfts": ttfts, "itls": itls}))


def test_judge_places_requests_on_the_servers_gpu(gpuwatch: Gpuwatch, daemon: Settings, tmp_path: Path) -> None:
    """Monotonic start times select the interval and stored contexts select the GPU; otherwise the output gives a reason."""
    path = tmp_path / "serve.json"
    serving(path, 1.0)
    sample_for(1.6)  # the daemon commits every 0.5 s
    data = gpuwatch("judge", *daemon.flags(), str(path), "--json").data
    check(data, "urn:gpuwatch:cli:1#/$defs/judged_results")
    (verdict,) = data["verdicts"]
    assert (data["not_placed"], verdict["label"], verdict["simulated"]) == (None, "serve.json", True)
    assert verdict["end_ns"] - verdict["begin_ns"] == pytest.approx(1e9, rel=0.1)
    (clocks,) = data["requests"]["sm_clock_mhz"].values()
    assert len(clocks) == data["requests"]["count"]
    assert min(clocks) > 1000
    assert "SM clock" in gpuwatch("judge", *daemon.flags(), str(path)).out
    assert "expected a measured process on a GPU" in gpuwatch("judge", *daemon.flags(), str(path), "--pid", "1").err
    shifted = json.loads(path.read_text())
    shifted["start_times"] = [each + 7200 for each in shifted["start_times"]]
    path.write_text(json.dumps(shifted))
    assert "expected times since this machine's boot" in gpuwatch("judge", *daemon.flags(), str(path)).err


def test_judge_reads_start_times_of_a_table(gpuwatch: Gpuwatch, daemon: Settings, tmp_path: Path) -> None:
    """The verdict on a CSV with start times has the median of the CSV's times; start times are optional."""
    path = tmp_path / "times.csv"
    lines = ["begin,took_ms"]
    for _ in range(40):
        begin_s = time.monotonic()
        sample_for(0.02)
        lines.append(f"{begin_s},{1e3 * (time.monotonic() - begin_s)}")
    path.write_text("\n".join(lines))
    sample_for(1.6)
    data = gpuwatch("judge", *daemon.flags(), str(path), "--times", "took_ms", "--begin", "begin", "--json").data
    numbers = {each["number"]: each["value"] for each in data["verdicts"][0]["budget"]["numbers"]}
    assert numbers["median"] == pytest.approx(0.02, rel=0.5)
    assert gpuwatch("judge", str(path), "--times", "took_ms").code == 0


def test_run_reads_the_times_of_hyperfine(daemon: Settings, tmp_path: Path) -> None:
    """The verdict on a real hyperfine run has the median of the times in hyperfine's file."""
    report, file = tmp_path / "verdict.json", tmp_path / "hf.json"
    script = Path(__file__).parents[3] / "examples" / "harness" / "hyperfine.sh"
    arguments = ["--json", str(report), "--times", str(file), "--", program("hyperfine"), "-N", "--runs", "12"]
    assert 'exec gpuwatch run --times "$file" -- hyperfine --export-json "$file"' in script.read_text()
    ended = run(*arguments, "--export-json", str(file), "sleep 0.2", settings=daemon)
    assert ended.returncode == 0, ended.stderr
    assert "--times:" not in ended.stderr
    numbers = {each["number"]: each for each in json.loads(report.read_text())["verdicts"][0]["budget"]["numbers"]}
    (result,) = json.loads(file.read_text())["results"]
    assert numbers["median"]["value"] == pytest.approx(result["median"], rel=1e-3)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("true", "expected a file that the command writes, found an unchanged one"),
        ("rm FILE", "expected a result file, found nothing to read"),
        ("echo {} > FILE", "an empty object"),
        ("cp HYPERFINE FILE", "found 2; choose one with --series NAME"),
        ("cp NVBENCH FILE; sleep 0.1", "expected one series of times, found none"),
    ],
)
def test_run_without_readable_times_names_the_reason(daemon: Settings, tmp_path: Path, script: str, words: str) -> None:
    """Without readable times the command still runs, is judged, and keeps its exit code."""
    file = tmp_path / "r.json"
    file.write_text("{}")
    line = script.replace("FILE", str(file)).replace("HYPERFINE", str(FILES / "hyperfine.json")).replace("NVBENCH", R1)
    ended = run("--times", str(file), "--", "sh", "-c", f"{line}; exit 3", settings=daemon)
    assert ended.returncode == 3
    said = " ".join(ended.stderr.split())
    assert words in said
    assert "judged without times" in said
    assert "SIMULATED" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((R1, "--clock", "x"), "--clock, --begin: expected --times with them"),
        ((R1, "--series", "softmax"), "--series: expected a part of a series name in r1.json (first series: 'gemm Device=0'"),
        ((R1, "--trust", "x.pub"), "--trust: expected a report, found a result file"),
        ((R1, "--to", "1h"), "--to: expected --from with it"),
        ((str(FILES / "README.md"), "--series", "x"), "--series: expected a result file"),
    ],
)
def test_judge_of_results_refuses_wrong_options(
    gpuwatch: Gpuwatch, daemon: Settings, arguments: tuple[str, ...], words: str
) -> None:
    ended = gpuwatch("judge", *daemon.flags(), *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
