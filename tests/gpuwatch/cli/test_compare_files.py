"""Tests of gpuwatch compare with reports and capsules of several machines, and with this machine's runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from annotate.capsule.pack import pack
from annotate.evidence import Evidence, Host
from annotate.judge import judge
from gpuwatch.report import html_page, record, redaction
from gpuwatch.report.record import ReportedWindow
from tests.annotate.builders import DEVICE, evidence
from tests.annotate.compare.test_decision import stamped
from tests.annotate.occurrences.comparison import times
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.store.stored import a_run, opened
from tests.gpuwatch.store.streams import BEGIN_NS

THEIR_DEVICE = replace(DEVICE, uuid="GPU-2", driver_version="570.1", power_limit_w=600.0)


def ours(label: str = "gemm", took_s: float = 2e-3) -> Evidence:
    return evidence(timings=stamped(took_s, 1490.0), host=Host(boot_id="here", hostname="lab1"), label=label)


def theirs(label: str = "gemm", took_s: float = 2e-3) -> Evidence:
    timings = stamped(took_s, 1430.0, seed=3)
    return evidence(timings=timings, device=THEIR_DEVICE, host=Host(boot_id="there", hostname="lab2"), label=label)


def report(path: Path, *windows: Evidence, redacted: Sequence[str] = ()) -> str:
    shown = redaction.redacted([ReportedWindow(verdict=judge(each), evidence=each) for each in windows], redacted)
    path.write_text(html_page.render(record.make_record(shown, redacted), "n" * 24))
    return str(path)


def capsule(path: Path, *windows: Evidence) -> str:
    path.write_bytes(pack(windows))
    return str(path)


@pytest.mark.parametrize("write", [report, capsule])
def test_files_of_two_machines_compare_at_one_clock(gpuwatch: Gpuwatch, tmp_path: Path, write: object) -> None:
    """Text and JSON show the common clock and the differences; the JSON has the spread between cards too."""
    assert callable(write)
    files = (write(tmp_path / "a.file", ours()), write(tmp_path / "b.file", theirs(took_s=1.9e-3)))
    ended = gpuwatch("compare", *files, "--json")
    assert ended.code == 0, ended.err
    check(ended.data, "urn:gpuwatch:cli:1#/$defs/compare")
    found = ended.data["comparisons"][0]
    assert (found["decision"], found["a"], found["b"]) == ("faster", "gemm a.file", "gemm b.file")
    assert (found["one_clock"]["a_mhz"], found["one_clock"]["card_spread_ratio"]) == (1462.0, pytest.approx(0.0040, rel=0.02))
    assert {"GPU", "driver", "power limit"} <= {each["name"] for each in found["conditions"] if each["differs"]}
    assert ended.data["runs"] == []
    text = gpuwatch("compare", *files).out
    assert text.startswith("FASTER  gemm b.file against gemm a.file\n  differs: power limit: 700 W -> 600 W\n")
    assert "two machines, at 1462 MHz" in text


def test_compare_exits_by_the_decision_on_files(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    files = (report(tmp_path / "a.html", ours()), report(tmp_path / "b.html", theirs(took_s=2.1e-3)))
    assert gpuwatch("compare", *files, "--fail-on", "slower").code == 1
    assert gpuwatch("compare", *files, "--fail-on", "faster").code == 0


def test_compare_of_files_writes_differences_as_markdown(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    files = (report(tmp_path / "a.html", ours()), report(tmp_path / "b.html", theirs()))
    shown = gpuwatch("compare", *files, "--markdown").out
    assert shown.startswith("**SAME** gemm b.html against gemm a.html")
    assert "| driver | 580.159.04 | 570.1 |" in shown


def test_compare_pairs_windows_of_files_by_label(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    a = report(tmp_path / "a.html", ours("one"), ours("two"), ours("alone"))
    b = capsule(tmp_path / "b.capsule", theirs("two", 2.1e-3), theirs("one", 1.9e-3))
    found = gpuwatch("compare", a, b, "--json").data["comparisons"]
    assert [(each["b"], each["decision"]) for each in found] == [("one b.capsule", "faster"), ("two b.capsule", "slower")]


def test_compare_of_single_windows_ignores_labels(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    files = (report(tmp_path / "a.html", ours("old")), report(tmp_path / "b.html", theirs("new")))
    assert gpuwatch("compare", *files).out.startswith("SAME  new against old")


def test_compare_of_a_run_with_a_report(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    with_store = opened(tmp_path / "state")
    with_store.put_device(DEVICE)
    run = a_run(
        label="gemm", begin_ns=BEGIN_NS, end_ns=BEGIN_NS + 6_000_000_000, uuids=(DEVICE.uuid,), host=Host(boot_id="here"),
        declared={},
    )  # fmt: skip
    with_store.put_run(run)
    timings = stamped(2e-3, 1490.0)
    with_store.put_timings(run.id, replace(timings, at_ns=timings.at_ns - timings.at_ns[0] + BEGIN_NS))
    with_store.close()
    where = ("--state", str(tmp_path / "state"), "--socket", str(tmp_path / "s"))
    ended = gpuwatch(*where, "compare", run.id, report(tmp_path / "b.html", theirs()), "--json")
    assert ended.code == 0, ended.err
    found = ended.data["comparisons"][0]
    assert (ended.data["runs"], found["one_clock"]["b_mhz"]) == ([run.id], 1462.0)


def test_compare_treats_redacted_reports_as_two_machines(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """Two redacted reports count as two cards, although both have the placeholder `redacted-serial-1`."""
    kinds = ("serial", "host")
    device = replace(THEIR_DEVICE, driver_version=DEVICE.driver_version, power_limit_w=700.0)
    a = report(tmp_path / "a.html", ours(), redacted=kinds)
    b = report(tmp_path / "b.html", replace(theirs(), device=device), redacted=kinds)
    found = gpuwatch("compare", a, b, "--json").data["comparisons"][0]
    assert found["one_clock"]["card_spread_ratio"] == pytest.approx(0.0040, rel=0.02)
    assert any("redacted" in reason for reason in found["reasons"])


def test_compare_refuses_raw_times_of_two_machines(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    a = report(tmp_path / "a.html", evidence(timings=times(2e-3), label="gemm"))
    b = report(tmp_path / "b.html", evidence(timings=times(2e-3, seed=1), device=THEIR_DEVICE, label="gemm"))
    text = gpuwatch("compare", a, b).out
    assert text.startswith("INCOMPARABLE")
    assert "not compared at one clock: gemm a.html has no number at one clock: nothing stamped the clock" in text


def test_compare_uses_given_clock_and_card_spread(gpuwatch: Gpuwatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--clock and the setting card_spread replace the defaults; a spread out of range is refused."""
    files = (report(tmp_path / "a.html", ours()), report(tmp_path / "b.html", theirs()))
    monkeypatch.setenv("GPUWATCH_CARD_SPREAD", "1 %")
    found = gpuwatch("compare", *files, "--clock", "1450", "--json").data["comparisons"][0]
    assert (found["one_clock"]["b_mhz"], found["one_clock"]["card_spread_ratio"]) == (1450.0, 0.01)
    assert found["decision"] == "inconclusive"
    monkeypatch.setenv("GPUWATCH_CARD_SPREAD", "50 %")
    refused = gpuwatch("compare", *files)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "expected 0.01 % to 30 %" in refused.err


@pytest.mark.parametrize("clock", ["nan", "5", "1e9", "-inf"])
def test_compare_refuses_an_impossible_clock_in_one_line(gpuwatch: Gpuwatch, tmp_path: Path, clock: str) -> None:
    files = (report(tmp_path / "a.html", ours()), report(tmp_path / "b.html", theirs()))
    ended = gpuwatch("compare", *files, f"--clock={clock}")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "--clock: expected MHZ, a number from 100 to 5000, found" in ended.err


def test_compare_of_two_models_needs_ratio(gpuwatch: Gpuwatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(theirs(took_s=1e-3), device=replace(THEIR_DEVICE, name="NVIDIA H100"))
    files = (report(tmp_path / "a.html", ours()), report(tmp_path / "b.html", other))
    refused = gpuwatch("compare", *files).out
    assert refused.startswith("INCOMPARABLE")
    assert "only their ratio can be compared (--ratio)" in refused
    monkeypatch.setenv("GPUWATCH_CARD_SPREAD", "0.3 %")
    assert gpuwatch("compare", *files, "--ratio", "--clock", "1450").out.startswith("FASTER")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "found nothing to read"),
        (b"<!doctype html><p>no report</p>", "expected a gpuwatch report"),
        (b"\0\0\0", "found another format"),
    ],
)
def test_compare_refuses_another_file_in_one_line(gpuwatch: Gpuwatch, tmp_path: Path, content: bytes | None, says: str) -> None:
    wrong = tmp_path / "b.html"
    if content is not None:
        wrong.write_bytes(content)
    ended = gpuwatch("compare", report(tmp_path / "a.html", ours()), str(wrong))
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert says in ended.err


def test_compare_names_labels_of_files_without_a_pair(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    a = capsule(tmp_path / "a.capsule", ours("one"), ours("two"))
    b = capsule(tmp_path / "b.capsule", theirs("three"))
    c = capsule(tmp_path / "c.capsule", theirs("one"), theirs("one"))
    for other, says in ((b, "found one, two in a.capsule and three in b.capsule"), (c, "c.capsule: expected one window 'one'")):
        ended = gpuwatch("compare", a, other)
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
        assert says in ended.err


def test_compare_of_functions_refuses_clock(gpuwatch: Gpuwatch, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    (home / "a.py").write_text("def f(): ...\ndef g(): ...\n")
    ended = gpuwatch("compare", "a.py:f", "a.py:g", "--clock", "1500")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "--clock, --ratio" in ended.err
