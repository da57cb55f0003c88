"""Comparisons of a report's windows, pair by pair, where both have times."""

from __future__ import annotations

from collections.abc import Sequence

from annotate.compare import two_runs
from annotate.compare.decision import Comparison
from annotate.errors import AnnotateError
from annotate.output.report import plain
from annotate.policy import Policy
from gpuwatch.report.record import ReportedWindow


def names(windows: Sequence[ReportedWindow]) -> list[str]:
    """Return a name for each window: its label, with its place where labels repeat."""
    labels = [plain(window.verdict.label or "unnamed window") for window in windows]
    return [f"{label} ({place + 1})" if labels.count(label) > 1 else label for place, label in enumerate(labels)]


def comparisons(windows: Sequence[ReportedWindow]) -> list[Comparison]:
    """Compare each window that has times with the first such window of another run, on the same GPU where there is one.

    The second window's policy judges, as in `gpuwatch compare`.
    """
    labels = names(windows)
    timed = [place for place, window in enumerate(windows) if _has_times(window)]
    found = []
    for place in timed:
        earlier = [each for each in timed if each < place and _is_other_run(windows[each], windows[place])]
        same_gpu = [each for each in earlier if windows[each].verdict.device_uuid == windows[place].verdict.device_uuid]
        if earlier:
            first = (same_gpu or earlier)[0]
            found.append(_compare(windows[first], windows[place], (labels[first], labels[place])))
    return found


def _compare(a: ReportedWindow, b: ReportedWindow, both: tuple[str, str]) -> Comparison:
    if a.evidence is None or b.evidence is None:
        raise ValueError("expected windows with evidence")
    try:
        policy = Policy.from_dict(b.verdict.policy)
    except AnnotateError:  # of a version whose rules or limits are gone
        policy = Policy()
    return two_runs.of_runs(a.evidence, b.evidence, policy, names=both)


def _has_times(window: ReportedWindow) -> bool:
    timings = window.evidence.timings if window.evidence is not None else None
    return timings is not None and bool(timings.timed.any())


def _is_other_run(a: ReportedWindow, b: ReportedWindow) -> bool:
    return a.run_id is None or a.run_id != b.run_id
