"""Tests of ncu's CSV as counters, and of ncu as a process.

The texts are real, or have the form of real texts with other numbers:
- ``ncu_h200.csv``: output of ncu 2025.3.1 on an H200 for the naive transpose (driver 580.159.04, 2026-11-22), some columns;
- the raw page with a row of units, textual attributes, and lines before and after the page, as in 1Cat-vLLM's
  tests/models/qwen4_exp/test_sm70_moe_unique_experts_bench_cpu.py (``--csv --page raw --print-units base``);
- commas between thousands, and ``n/a``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.diff.kernel_counters import DURATION, METRICS
from gpuwatch.diff.read_counters import CountersRefusedError, combine, count, parse

ABOUT = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC"'
RAW = f"""==PROF== Connected to process 2206 (/usr/bin/python3.12)
==PROF== Profiling "scan" - 0: 0%....50%....100% - 7 passes
{ABOUT},"c2clink__enabled_mask","device__attribute_mode","{DURATION}","dram__bytes_read.sum","dram__bytes_write.sum","l1tex__t_sector_hit_rate.pct","lts__t_sector_hit_rate.pct"
"","","","","","","","","","","","","","ns","byte","Kbyte","%","%"
"0","2206","python3","127.0.0.1","scan(const float *, float *, int)","1","7","(256, 1, 1)","(5, 20, 1)","0","9.0","0x3","No-CC","28,448","5,156,128","5.76","41.25","n/a"
"1","2206","python3","127.0.0.1","scan(const float *, float *, int)","1","7","(256, 1, 1)","(5, 20, 1)","0","9.0","0x3","No-CC","30,000","5,000,000","0","40","n/a"
==PROF== Disconnected from process 2206
"""


def test_ncu_page_of_an_h200_gives_every_counter() -> None:
    found = combine(parse(Path(__file__).with_name("ncu_h200.csv").read_text()))
    assert set(found) == {metric.name for metric in METRICS if metric.ncu}
    assert found["dram_bytes"] == (292166144 + 272153600, 292072704 + 272028672, 292058624 + 271973632)
    assert found["store_efficiency_ratio"] == (0.125, 0.125, 0.125)
    assert found["stall_memory_ratio"] == pytest.approx((0.3684, 0.3687, 0.3672))
    assert found["thread_activity_ratio"] == (1.0, 1.0, 1.0)


def test_raw_page_units_are_applied() -> None:
    first, second = parse(RAW)
    assert first == {
        "ID": 0.0, "Process ID": 2206.0, "Context": 1.0, "Stream": 7.0, "Device": 0.0, "CC": 9.0, DURATION: pytest.approx(28448e-9),
        "dram__bytes_read.sum": 5156128.0, "dram__bytes_write.sum": 5760.0, "l1tex__t_sector_hit_rate.pct": pytest.approx(0.4125),
    }  # fmt: skip
    assert second["dram__bytes_write.sum"] == 0.0


@pytest.mark.parametrize(
    "text", ["", "==ERROR== no", '"ID","Kernel Name"', '"a","b"\n"c"', '"ID","Kernel Name","x"\n"","","\n']
)
def test_text_without_launches_gives_no_counters(text: str) -> None:
    assert parse(text) == []


def test_pipeline_launches_are_combined() -> None:
    """Amounts are added up and shares averaged by time, separately for each of three repetitions."""
    launches = [
        {DURATION: time, "dram__bytes_read.sum": 10.0, "dram__bytes_write.sum": 1.0, "lts__t_sector_hit_rate.pct": hit}
        for _ in range(3)
        for time, hit in ((3.0, 0.2), (1.0, 1.0))
    ]
    found = combine(launches)
    assert found["dram_bytes"] == (22.0, 22.0, 22.0)
    assert found["l2_hit_ratio"] == pytest.approx((0.4, 0.4, 0.4))
    assert "bank_conflicts_count" not in found


def program(folder: Path, script: str) -> str:
    """Write a mock ncu that runs a shell script, and return its path; ``$log`` is the file that ncu would write."""
    file = folder / "ncu"
    file.write_text(f'#!/bin/sh\nwhile [ "$1" != --log-file ]; do shift; done\nlog="$2"\nshift 2\n{script}\n')
    file.chmod(0o755)
    return str(file)


def test_ncu_runs_the_command_and_its_counters_are_read(tmp_path: Path) -> None:
    (tmp_path / "said.csv").write_text(RAW)
    ncu = program(tmp_path, f'echo "$@" "$LC_ALL" > {tmp_path}/words; cp {tmp_path}/said.csv "$log"')
    assert count(ncu, ["python3", "-m", "work"])["dram_bytes"] == (10161888.0,)
    assert (tmp_path / "words").read_text() == "python3 -m work C\n"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission" > "$log"; exit 1', "ERR_NVGPUCTRPERM"),
        ("exit 3", "no kernel was counted .exit code 3."),
        ("exec sleep 60", "timed out"),
    ],
)
def test_missing_ncu_counters_have_a_reason(tmp_path: Path, script: str, words: str) -> None:
    with pytest.raises(CountersRefusedError, match=words):
        count(program(tmp_path, script), ["true"], patience_s=2.0 if "sleep" in script else 60.0)


def test_failed_ncu_start_has_a_reason() -> None:
    with pytest.raises(CountersRefusedError, match="No such file"):
        count("/nonexistent/ncu", ["true"])


def test_counter_names_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
