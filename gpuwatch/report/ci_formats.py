"""Windows for CI systems and pull requests: JUnit XML and Markdown."""

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from annotate.compare import decision
from annotate.output import report
from annotate.verdict import Status
from gpuwatch.report.comparisons import comparisons
from gpuwatch.report.record import ReportedWindow


def junit(windows: Sequence[ReportedWindow]) -> str:
    """Render one test case for each window and GPU: rejected fails, unproven is an error, flagged passes with its findings."""
    counts = {status: sum(window.verdict.status is status for window in windows) for status in Status}
    suite = ET.Element(
        "testsuite",
        name="gpuwatch",
        tests=str(len(windows)),
        failures=str(counts[Status.REJECTED]),
        errors=str(counts[Status.UNPROVEN]),
        skipped="0",
        time=f"{sum(window.verdict.length_s for window in windows):.6f}",
    )
    for window in windows:
        verdict = window.verdict
        name = report.plain(verdict.label or window.run_id or "unnamed window")
        gpu = report.plain(verdict.device_name or "no GPU")
        case = ET.SubElement(suite, "testcase", name=name, classname=f"gpuwatch.{gpu}", time=f"{verdict.length_s:.6f}")
        hazards = "; ".join(
            f"{each.rule}: {each.says}" for each in verdict.hazards if each.severity != "note" and not each.accepted
        )
        kind = {Status.REJECTED: "failure", Status.UNPROVEN: "error"}.get(verdict.status)
        if kind is not None:
            outcome = ET.SubElement(case, kind, message=report.plain(hazards or verdict.why), type=verdict.status.value)
            outcome.text = report.text(verdict, verbose=True)
        else:
            ET.SubElement(case, "system-out").text = report.text(verdict)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def markdown(windows: Sequence[ReportedWindow]) -> str:
    """Render the verdicts, then the comparisons."""
    parts = [report.markdown(window.verdict) for window in windows]
    # Markdown shows text indented by four as code, so a label cannot become markup, a mention or a link.
    parts += [
        "".join(f"    {report.plain(line)}\n" for line in decision.text(each).split("\n")) for each in comparisons(windows)
    ]
    return "\n".join(parts)
