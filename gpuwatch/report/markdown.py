"""Windows as Markdown, for a pull request: verdicts, and comparisons of their times."""

from __future__ import annotations

from collections.abc import Sequence

from annotate.compare.decision import text
from annotate.output import report
from gpuwatch.report.comparisons import comparisons
from gpuwatch.report.record import ReportedWindow


def markdown(windows: Sequence[ReportedWindow]) -> str:
    """Render the verdicts, then the comparisons."""
    parts = [report.markdown(window.verdict) for window in windows]
    # Indented by four it is code, in which no label is markup, a mention or a link.
    parts += ["".join(f"    {line}\n" for line in text(each).split("\n")) for each in comparisons(windows)]
    return "\n".join(parts)
