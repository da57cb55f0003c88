"""Tests of reading a page and judging the evidence again, after manipulations."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from annotate.capsule.pack import pack
from annotate.user_policy import Policy
from annotate.verdict import Status
from gpuwatch.errors import UsageError
from gpuwatch.report import html_page, read_page, record
from gpuwatch.report.record import ReportedWindow
from gpuwatch.report.redaction import kinds, redacted
from gpuwatch.report.rejudge import agreement
from tests.gpuwatch.report.conftest import NONCE, Page, judged, rendered, scene, with_processes


@pytest.fixture(scope="module")
def html() -> str:
    return rendered(judged(scene("from-idle"), run_id="0a"))


def loaded(folder: Path, html: str) -> read_page.PageContent:
    path = folder / "report.html"
    path.write_text(html)
    return read_page.load(path)


def test_verdict_and_evidence_of_an_untouched_page_agree(tmp_path: Path, html: str) -> None:
    held = loaded(tmp_path, html)
    assert held.as_written is True
    assert held.record.windows[0].run_id == "0a"
    assert [agreement(window).differs for window in held.record.windows] == [()]


def test_changed_verdict_disagrees_with_evidence(tmp_path: Path) -> None:
    window = judged(scene("from-idle"))
    forged = replace(window, verdict=replace(window.verdict, status=Status.VALID, findings=()))
    held = loaded(tmp_path, rendered(forged))
    found = agreement(held.record.windows[0])
    assert held.as_written is True
    assert found.differs[0] == "status: the report shows 'valid', the evidence 'flagged'"
    assert any(line.startswith("regime-change: the report shows nothing") for line in found.differs)


def test_page_with_half_a_surrogate_pair_is_cleaned(tmp_path: Path, html: str) -> None:
    """Half of a surrogate pair in JSON is replaced, because UTF-8 cannot encode half a pair."""
    held = loaded(tmp_path, html.replace('"run_id":"0a"', '"run_id":"\\ud800"'))
    assert held.record.windows[0].run_id == "�"
    assert held.as_written is False


def test_verdict_other_than_unproven_needs_evidence() -> None:
    valid = replace(judged(scene("from-idle")).verdict, status=Status.VALID)
    assert not agreement(ReportedWindow(verdict=valid, evidence=None)).agrees
    assert agreement(ReportedWindow(verdict=replace(valid, status=Status.UNPROVEN), evidence=None)).agrees


def test_rejudging_applies_the_recorded_policy() -> None:
    from annotate.judge import judge

    evidence = scene("from-idle")
    accepting = judge(evidence, Policy(accept=frozenset({"regime-change", "window-too-short"})))
    assert accepting.status is Status.VALID
    assert agreement(ReportedWindow(verdict=accepting, evidence=evidence)).agrees


def broken(html: str) -> list[str]:
    read = Page(html)
    data, evidence = read.data("gpuwatch-record"), read.blocks["gpuwatch-evidence"]
    without = {**data, "windows": [{**data["windows"][0], "has_evidence": False}]}
    return [
        "",
        "<p>a page of somebody's",
        html.replace("gpuwatch-evidence", "another"),
        html.replace(evidence, evidence[:-40]),
        html.replace(evidence, "not base64"),
        html.replace(evidence, base64.b64encode(b"not a zip").decode()),
        html.replace(evidence, base64.b64encode(pack(())).decode()),
        html.replace(read.blocks["gpuwatch-record"], "{"),
        html.replace(read.blocks["gpuwatch-record"], "[]"),
        html.replace(read.blocks["gpuwatch-record"], "[" * 100_000),
        html.replace(read.blocks["gpuwatch-record"], json.dumps({**data, "schema": 99})),
        html.replace(read.blocks["gpuwatch-record"], json.dumps(without)),
        html.replace("</body>", '<script type="text/plain" id="gpuwatch-evidence"></script></body>'),
    ]


def test_file_that_is_not_a_report_is_refused(tmp_path: Path, html: str) -> None:
    for text in broken(html):
        with pytest.raises(UsageError, match=r"^.*report\.html: expected"):
            loaded(tmp_path, text)
    (tmp_path / "binary.html").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "binary.html", tmp_path / "missing.html", tmp_path):
        with pytest.raises(UsageError, match="expected a gpuwatch report"):
            read_page.load(path)


def test_redaction_reaches_everything_and_still_agrees(tmp_path: Path) -> None:
    plain = scene("neighbour")
    assert plain.device is not None
    uuid = plain.device.uuid
    named = replace(
        with_processes(plain, user="zoe"),
        window=replace(plain.window, label="of Zoe on hopper7, zoe_v2"),
        host=replace(plain.host, hostname="hopper7.lab.example", boot_id="b00t"),
        declared={"cuda_uuids": uuid, "environment": "HOME=/home/zoe", "zoe's": f"MIG-{uuid}/1/0 HOPPER7.LAB.EXAMPLE"},
    )
    windows = redacted([judged(named, user="zoe", process="python")], kinds("host,user,serial"))
    held = loaded(tmp_path, html_page.render(record.make_record(windows, kinds("host,user,serial")), NONCE))
    assert [agreement(window).differs for window in held.record.windows] == [()]
    read = Page((tmp_path / "report.html").read_text())
    shown = read.html.replace(read.blocks["gpuwatch-plotly"], "").replace(read.blocks["gpuwatch-evidence"], "")
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(read.blocks["gpuwatch-evidence"]))) as archive:
        inside = b"".join(map(archive.read, archive.namelist())).decode(errors="replace")
    assert "redacted-user-1" in inside
    for name in ("zoe", "hopper7", "lab.example", "b00t", uuid, uuid.removeprefix("GPU-")):
        assert name.lower() not in shown.lower(), name
        assert name.lower() not in inside.lower(), name
    assert "Redacted: host, user, serial." in read.words


def test_redaction_changes_only_requested_kinds() -> None:
    window = judged(scene("from-idle"), user="root")
    assert redacted([window], ()) == (window,)
    assert redacted([window], ("user",))[0].verdict == window.verdict
    with pytest.raises(UsageError, match="--redact: expected some of host, user, serial"):
        kinds("host,all")
