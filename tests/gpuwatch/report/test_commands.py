"""Tests of `gpuwatch report` and `gpuwatch verify` on recordings and on a real store of a simulated GPU."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from annotate.output.report import length_words
from gpuwatch.client.window import Window, window
from gpuwatch.config.settings import Settings
from tests.gpuwatch.cli.conftest import Gpuwatch, daemon, gpuwatch, home
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.report.conftest import Page
from tests.gpuwatch.report.test_html_page import CAPSULE
from tests.waiting import sample_for

__all__ = ["daemon", "gpuwatch", "home"]


@pytest.fixture(scope="module")
def measured(daemon: Settings) -> Window:
    with window("<b>short</b>", sync=False, settings=daemon) as watched:
        sample_for(0.2)
    assert watched.verdicts
    return watched


def test_report_of_stored_run_is_verified(gpuwatch: Gpuwatch, daemon: Settings, measured: Window, tmp_path: Path) -> None:
    target = tmp_path / "run.html"
    ended = gpuwatch(*daemon.flags(), "report", str(measured.run_id), "-o", str(target))
    assert (ended.code, ended.out) == (0, "")
    assert "1 window, " in ended.err
    assert " 0.0 MB" not in ended.err
    shown = Page(target.read_text()).words
    assert shown.count(length_words(measured.verdict.length_s)) >= 2
    assert "signed by SHA256:" in ended.err
    assert "<b>short</b>" in Page(target.read_text()).words
    verified = gpuwatch("verify", str(target))
    assert verified.code == 0
    assert "<b>short</b>: verdict and evidence agree: " in verified.out
    assert "signature: signed by SHA256:" in verified.out
    data = gpuwatch("verify", str(target), "--json").data
    check(data, "urn:gpuwatch:cli:1#/$defs/verify")
    assert (data["agrees"], data["page_as_written"], data["signature"]) == (True, True, "unknown signer")
    assert data["windows"][0]["run"] == measured.run_id


def test_changed_page_is_reported_with_exit_code_1(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    target = tmp_path / "run.html"
    assert gpuwatch("report", "--trace", str(CAPSULE), "-o", str(target), "--fail-on", "rejected").code == 11
    target.write_text(target.read_text().replace("REJECTED", "VALID"))
    ended = gpuwatch("verify", str(target))
    assert ended.code == 1
    assert "page: CHANGED since it was written" in ended.out


def test_markdown_and_junit_go_to_stdout_or_file(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    first = gpuwatch("audit", "--trace", str(CAPSULE), "--json").data["verdicts"]
    status = next(each["status"] for each in first if each["label"] == "plain-run").upper()
    markdown = gpuwatch("report", "--trace", str(CAPSULE), "--markdown").out
    assert markdown.startswith(f"**{status}** plain\\-run on NVIDIA H200")
    assert ET.fromstring(gpuwatch("report", "--trace", str(CAPSULE), "--junit").out.encode()).get("tests") == "14"
    assert gpuwatch("report", "--trace", str(CAPSULE), "--junit", "-o", str(tmp_path / "junit.xml")).code == 0
    assert ET.parse(tmp_path / "junit.xml").getroot().tag == "testsuite"
    assert gpuwatch("report", "--trace", str(CAPSULE), "--junit", "-o", "-").out.startswith("<?xml")


def test_page_written_to_stdout_verifies(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    (tmp_path / "run.html").write_text(gpuwatch("report", "--trace", str(CAPSULE), "-o", "-").out)
    assert gpuwatch("verify", str(tmp_path / "run.html")).code == 0


def test_report_refuses_in_one_line_and_writes_nothing(
    gpuwatch: Gpuwatch, daemon: Settings, measured: Window, tmp_path: Path
) -> None:
    target = str(tmp_path / "run.html")
    trace = ("--trace", str(CAPSULE))
    for code, arguments, message in (
        (2, (*trace,), "-o FILE"),
        (2, (*trace, "-o", str(tmp_path)), "expected a file in a writable folder"),
        (2, (*trace, "-o", str(tmp_path / "none" / "run.html")), "expected a file in a writable folder"),
        (2, (*trace, "--markdown", "--junit"), "found both"),
        (2, (*trace, "-o", target, "--redact", "name"), "host, user, serial"),
        (2, ("0a", *trace, "-o", target), "found both"),
        (2, ("--trace", str(tmp_path / "missing"), "-o", target), "missing"),
        (1, ("ffffffff", "-o", target), "ffffffff"),
    ):
        ended = gpuwatch(*daemon.flags(), "report", *arguments)
        assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1), arguments
        assert message in ended.err
    ended = gpuwatch("verify", str(CAPSULE))
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "expected a gpuwatch report" in ended.err
    assert not Path(target).exists()
