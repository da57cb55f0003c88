"""The exit codes of gpuwatch: a contract with scripts."""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from annotate.verdict import Status, Verdict


class Exit(IntEnum):
    """The exit codes of ``gpuwatch``.  ``gpuwatch run`` and ``gpuwatch ci`` pass on the code of a command that failed."""

    OK = 0
    FAILED = 1
    USAGE = 2
    FLAGGED = 10
    REJECTED = 11
    UNPROVEN = 12
    WRAPPER_FAILED = 125
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    INTERRUPTED = 130
    BROKEN_PIPE = 141


MEANINGS: Mapping[Exit, str] = {
    Exit.OK: "The command did its work.",
    Exit.FAILED: "The command failed; standard error gives the reason.  Also a negative answer of `doctor`, `daemon status`, `verify`, `judge`, `ci`, `compare --fail-on`, `diff --fail-on`.",
    Exit.USAGE: "An option, argument, setting or file is wrong.",
    Exit.FLAGGED: "`--fail-on` names flagged, and a window is flagged.  `selftest --qualify`: only some numbers are comparable.",
    Exit.REJECTED: "`--fail-on` names rejected, and a window is rejected.  `selftest --qualify`: no numbers are comparable.",
    Exit.UNPROVEN: "`--fail-on` names unproven, and a window is unproven or lacks required evidence.  `selftest --qualify`: comparability is unknown.",
    Exit.WRAPPER_FAILED: "`run` did not start its command, for example because of a wrong option.",
    Exit.NOT_EXECUTABLE: "`run` or `ci` cannot execute its command.",
    Exit.NOT_FOUND: "`run` or `ci` did not find its command.",
    Exit.INTERRUPTED: "Ctrl-C ended gpuwatch, or a signal ended `run` before its command started.",
    Exit.BROKEN_PIPE: "The reader of standard output closed it, as `| head` does.",
}

_OF_STATUS = {Status.FLAGGED: Exit.FLAGGED, Status.REJECTED: Exit.REJECTED, Status.UNPROVEN: Exit.UNPROVEN}

# The exit codes of `selftest --qualify`, by the comparability of this instance's windows with the reference's.
OF_COMPARABLE: Mapping[str, Exit] = {
    "comparable": Exit.OK,
    "partly": Exit.FLAGGED,
    "not-comparable": Exit.REJECTED,
    "unknown": Exit.UNPROVEN,
}


def worst_code(found: set[Status], fail_on: frozenset[Status]) -> Exit:
    """Return the code of the worst found status that --fail-on names; OK without one."""
    named = found & fail_on
    return _OF_STATUS[max(named, key=lambda status: status.badness)] if named else Exit.OK


def list_statuses(verdicts: Iterable[Verdict]) -> set[Status]:
    """Return the statuses for --fail-on: each verdict's, and unproven for a verdict that lacks required evidence."""
    found = list(verdicts)
    return {verdict.status for verdict in found} | {Status.UNPROVEN for verdict in found if verdict.why}


class ReaderLeft(Exception):  # noqa: N818 - not an error: `| head` closes its input early
    """The exit after the reader of standard output has closed it.  A BrokenPipeError would get click's exit code."""


class Stop(Exception):  # noqa: N818 - not every stop is an error: Ctrl-C ends a command too
    """The end of a command with a code and one line on stderr; ``name`` is the error code in --json output."""

    def __init__(self, code: Exit, message: str, name: str) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
