"""Tests of verdicts as JUnit XML for CI systems."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

from annotate.verdict import Status
from gpuwatch.report.ci_formats import junit
from tests.gpuwatch.report.conftest import judged, scene


def test_rejected_fails_unproven_is_an_error_and_flagged_passes() -> None:
    rejected, flagged = judged(scene("neighbour")), judged(scene("from-idle"))
    unproven = replace(flagged, verdict=replace(flagged.verdict, status=Status.UNPROVEN, why="no clock"))
    suite = ET.fromstring(junit([rejected, flagged, unproven]))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert [[child.tag for child in case] for case in suite] == [["failure"], ["system-out"], ["error"]]
    assert "used 54% of the GPU" in (suite[0][0].get("message") or "")


def test_labels_of_any_kind_stay_text() -> None:
    window = judged(scene("from-idle"))
    strange = replace(window, verdict=replace(window.verdict, label=']]><x a="\x00\x1b\udfff'))
    case = ET.fromstring(junit([strange]))[0]
    assert case.get("name") == r']]><x a="\x00\x1b\udfff'


def test_junit_has_every_attribute_ci_reads() -> None:
    suite = ET.fromstring(junit([judged(scene("neighbour")), judged(scene("from-idle"))]))
    assert suite.tag == "testsuite"
    assert all(float(suite.get(name, "x")) >= 0 for name in ("tests", "failures", "errors", "skipped", "time"))
    for case in suite:
        assert case.tag == "testcase"
        assert case.get("name")
        assert (case.get("classname") or "").startswith("gpuwatch.")
        assert float(case.get("time", "x")) > 0
    assert int(suite.get("failures", "x")) == len(suite.findall("testcase/failure"))
