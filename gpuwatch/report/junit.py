"""Verdicts as JUnit's XML, which every CI shows: a rejected window fails, an unproven one could not be judged."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from annotate.output.report import plain, text
from annotate.verdict import Status
from gpuwatch.report.record import ReportedWindow


def junit(windows: Sequence[ReportedWindow]) -> str:
    """One test case a window and GPU: rejected is a failure, unproven an error, flagged passes with what was found."""
    counts = {status: sum(window.verdict.status is status for window in windows) for status in Status}
    suite = ET.Element(
        "testsuite", name="gpuwatch", tests=str(len(windows)), failures=str(counts[Status.REJECTED]),
        errors=str(counts[Status.UNPROVEN]), skipped="0", time=f"{sum(window.verdict.length_s for window in windows):.6f}",
    )  # fmt: skip
    for window in windows:
        verdict = window.verdict
        case = ET.SubElement(
            suite, "testcase", name=plain(verdict.label or window.run_id or "unnamed window"),
            classname=f"gpuwatch.{plain(verdict.device_name or 'no GPU')}", time=f"{verdict.length_s:.6f}",
        )  # fmt: skip
        said = "; ".join(
            f"{each.rule}: {each.says}" for each in verdict.hazards if each.severity != "note" and not each.accepted
        )
        kind = {Status.REJECTED: "failure", Status.UNPROVEN: "error"}.get(verdict.status)
        if kind is not None:
            outcome = ET.SubElement(case, kind, message=plain(said or verdict.why), type=verdict.status.value)
            outcome.text = text(verdict, verbose=True)
        else:
            ET.SubElement(case, "system-out").text = text(verdict)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)
