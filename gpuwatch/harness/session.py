"""The windows that harnesses opened in this process, and the summary at the end of the process."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from annotate.errors import AnnotateError
from annotate.user_policy import Policy
from annotate.verdict import Status, Verdict
from gpuwatch.client.launch import say
from gpuwatch.client.many_verdicts import verdicts
from gpuwatch.client.start import start
from gpuwatch.errors import GpuwatchError
from gpuwatch.harness.harness_window import HarnessWindow
from gpuwatch.harness.quiet_log import quietly, take_messages

_MOST_WINDOWS_COUNT = 500  # per process; the daemon tracks at most 2048 windows of a user
_OFF = frozenset({"off", "0", "no", "false"})
_EXTEND = frozenset({"1", "on", "yes", "true"})

_inside: ContextVar[list[int] | None] = ContextVar("gpuwatch_counted_calls", default=None)


def is_off() -> bool:
    """Return True if GPUWATCH=off (or 0, no, false) is set: harnesses then get no windows."""
    return os.environ.get("GPUWATCH", "").strip().lower() in _OFF


def is_extended() -> bool:
    """Return True if GPUWATCH_EXTEND=1 (or on, yes, true) is set: harnesses then warm up until steady or measure longer."""
    return os.environ.get("GPUWATCH_EXTEND", "").strip().lower() in _EXTEND


@dataclass(slots=True)
class HarnessSession:
    """The windows of harnesses in one process; a forked child starts a new session."""

    pid: int = field(default_factory=os.getpid)
    windows: list[HarnessWindow] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)  # other lines of the summary, with their counts
    judged: dict[int, Verdict] = field(default_factory=dict)  # by the window's index
    reported_count: int = 0  # judged windows that a summary has reported

    def judge(self) -> list[tuple[HarnessWindow, Verdict]]:
        """Wait for missing verdicts of all closed windows, add them to the harnesses' results, and return all verdicts."""
        closed = [(place, each) for place, each in enumerate(self.windows) if each.end_ns is not None]
        waiting = [(place, each) for place, each in closed if place not in self.judged]
        with quietly("reading verdicts"):
            for (place, each), verdict in zip(waiting, verdicts(each for _, each in waiting), strict=True):
                self.judged[place] = _of_known(each, verdict)
                each.attached |= attachment(self.judged[place])
        return [(each, self.judged[place]) for place, each in closed if place in self.judged]


def attachment(verdict: Verdict) -> dict[str, object]:
    """Return a few plain facts of a verdict for a harness's result."""
    facts: dict[str, object] = {"status": verdict.status.value}
    facts |= {"why": verdict.why} if verdict.status is Status.UNPROVEN else {"causes": list(list_causes(verdict))}
    if verdict.simulated:
        facts["simulated"] = True
    numbers = verdict.budget.numbers if verdict.budget is not None else ()
    for each in numbers:
        if each.clock_mhz is not None and each.value is not None:
            facts |= {"median_at_clock_s": each.value, "clock_mhz": each.clock_mhz}
    return facts


def list_causes(verdict: Verdict) -> dict[str, str]:
    """Return the texts of the findings that decided a verdict, by rule; for an unproven verdict, the missing evidence."""
    if verdict.status is Status.UNPROVEN:
        return {"unproven": verdict.why}
    return {each.rule: each.says for each in verdict.causes if each.severity in ("flag", "reject") and not each.accepted}


def _of_known(window: HarnessWindow, verdict: Verdict) -> Verdict:
    if window.unknown is None:
        return verdict
    return replace(verdict, status=Status.UNPROVEN, findings=(), labels=(), budget=None, why=window.unknown)


_session = HarnessSession()


def current_session() -> HarnessSession:
    """Return this process's session; a forked child starts a new session."""
    global _session  # noqa: PLW0603 - one per process, like the patched modules
    if _session.pid != os.getpid():
        _session = HarnessSession()
    return _session


def open_window(face: str, label: str, policy: Policy | None = None, *, sync: bool = True) -> HarnessWindow | None:
    """Return a window that is not open yet; None if this call only counts, gpuwatch is off or fails, or at the limit.

    ``sync=False``: opening the window does not wait for the GPU's queue.
    """
    session = current_session()
    if is_off() or is_counted():
        return None
    if len(session.windows) >= _MOST_WINDOWS_COUNT:
        session.notes[f"{face}: no window, because this process has opened {_MOST_WINDOWS_COUNT}"] += 1
        return None
    with quietly("making a window"):
        if not session.windows:
            start()  # here, so that the daemon does not start between the harness's warm-up and timed part
        made = HarnessWindow(face, label[:200], policy or Policy(), sync=sync)
        _register_summary()
        session.windows.append(made)
        return made
    return None


def is_counted() -> bool:
    """Return True inside a block of ``counting``, and count the call."""
    counted = _inside.get()
    if counted is not None:
        counted[0] += 1
    return counted is not None


@contextlib.contextmanager
def counting(counted: list[int]) -> Iterator[None]:
    """Count the calls of harnesses inside the block, instead of opening a window for each."""
    token = _inside.set(counted)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the block ends in another context than it started in
            _inside.reset(token)


_registered: set[int] = set()  # processes that print their summary at exit


def _register_summary() -> None:
    if os.getpid() not in _registered:
        _registered.add(os.getpid())
        atexit.register(_print_summary, os.getpid())


def _print_summary(pid: int) -> None:
    if pid == os.getpid():
        with contextlib.suppress(GpuwatchError, AnnotateError, OSError):
            for line in summarize(current_session()):
                say(line)


def summarize(session: HarnessSession) -> list[str]:
    """Return one line per harness and cause, with counts, for windows that no summary has reported, and the new notes."""
    judged = session.judge()
    fresh, session.reported_count = judged[session.reported_count :], len(judged)
    lines = [line for face in dict.fromkeys(each.face for each, _ in fresh) for line in _face_lines(face, fresh)]
    session.notes.update(take_messages())
    lines += [f"{f'{count} × ' if count > 1 else ''}{note}" for note, count in session.notes.items()]
    session.notes.clear()
    return lines


def _face_lines(face: str, judged: Iterable[tuple[HarnessWindow, Verdict]]) -> Iterator[str]:
    from annotate.output.report import plain

    mine = [(window, verdict) for window, verdict in judged if window.face == face]
    statuses = Counter(verdict.status for _, verdict in mine)
    simulated = "SIMULATED " if any(verdict.simulated for _, verdict in mine) else ""
    counts = ", ".join(f"{statuses[status]} {status.value}" for status in Status if statuses[status])
    yield f"{simulated}{face}: {len(mine)} window{'s' * (len(mine) > 1)}: {counts}; gpuwatch show {mine[0][0].run_id or ''}".rstrip()
    found: dict[str, list[tuple[HarnessWindow, str]]] = {}
    for window, verdict in mine:
        for rule, says in list_causes(verdict).items():
            found.setdefault(rule, []).append((window, says))
    for rule, met in sorted(found.items(), key=lambda each: -len(each[1])):
        yield f"  {len(met)} of {len(mine)}  {plain(rule)}: {plain(met[0][1])}  (first: {plain(met[0][0].label or '')})"
