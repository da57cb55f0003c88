"""Comparisons of the times of a report's windows."""

from collections.abc import Sequence

from annotate.compare import two_runs
from annotate.compare.decision import Comparison
from annotate.errors import AnnotateError
from annotate.evidence import Evidence
from annotate.output.report import plain
from annotate.user_policy import Policy
from gpuwatch.report.record import ReportedWindow


def names(windows: Sequence[ReportedWindow]) -> list[str]:
    """Return a name for each window: its label, with a number if labels repeat."""
    labels = [plain(window.verdict.label or "unnamed window") for window in windows]
    return [f"{label} ({place + 1})" if labels.count(label) > 1 else label for place, label in enumerate(labels)]


def comparisons(windows: Sequence[ReportedWindow]) -> list[Comparison]:
    """Compare each window that has times with the first earlier one of another run, if possible on the same GPU.

    The second window's policy applies, as in `gpuwatch compare`.
    """
    found = []
    earlier: list[tuple[str, ReportedWindow, Evidence]] = []
    for label, window in zip(names(windows), windows, strict=True):
        evidence = window.evidence
        if evidence is None or evidence.timings is None or not evidence.timings.timed.any():
            continue
        others = [each for each in earlier if each[1].run_id is None or each[1].run_id != window.run_id]
        same_gpu = [each for each in others if each[1].verdict.device_uuid == window.verdict.device_uuid]
        if others:
            first_label, _, first = (same_gpu or others)[0]
            found.append(two_runs.of_runs(first, evidence, _policy(window), names=(first_label, label)))
        earlier.append((label, window, evidence))
    return found


def _policy(window: ReportedWindow) -> Policy:
    try:
        return Policy.from_dict(window.verdict.policy)
    except AnnotateError:  # the verdict's version had rules or limits that no longer exist
        return Policy()
