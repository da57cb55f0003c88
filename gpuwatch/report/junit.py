"""Verdicts as JUnit's XML, which CI systems show: a rejected window fails, an unproven one is an error."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from annotate.output.report import plain, text
from annotate.verdict import Status
from gpuwatch.report.record import ReportedWindow


def junit(windows: Sequence[ReportedWindow]) -> str:
    """Render one test case for each window and GPU: rejected fails, unproven is an error, flagged passes with its findings."""
    counts = {status: sum(window.verdict.status is status for window in windows) for status in Status}
    length_s = sum(window.verdict.length_s for window in windows)
    totals = {"tests": len(windows), "failures": counts[Status.REJECTED], "errors": counts[Status.UNPROVEN], "skipped": 0}
    texts = {name: str(count) for name, count in totals.items()}
    suite = ET.Element("testsuite", {"name": "gpuwatch", **texts, "time": f"{length_s:.6f}"})
    for window in windows:
        verdict = window.verdict
        name = plain(verdict.label or window.run_id or "unnamed window")
        gpu = plain(verdict.device_name or "no GPU")
        case = ET.SubElement(suite, "testcase", name=name, classname=f"gpuwatch.{gpu}", time=f"{verdict.length_s:.6f}")
        hazards = "; ".join(
            f"{each.rule}: {each.says}" for each in verdict.hazards if each.severity != "note" and not each.accepted
        )
        kind = {Status.REJECTED: "failure", Status.UNPROVEN: "error"}.get(verdict.status)
        if kind is not None:
            outcome = ET.SubElement(case, kind, message=plain(hazards or verdict.why), type=verdict.status.value)
            outcome.text = text(verdict, verbose=True)
        else:
            ET.SubElement(case, "system-out").text = text(verdict)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)
