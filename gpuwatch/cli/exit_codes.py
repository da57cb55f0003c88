"""The only place that decides exit codes: a contract with scripts."""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from annotate.verdict import Status, Verdict


class Exit(IntEnum):
    """What ``gpuwatch`` says to its caller.  ``gpuwatch run`` passes its command's own code on wherever there is one."""

    OK = 0
    FAILED = 1
    USAGE = 2
    FLAGGED = 10  # these three where --fail-on names the status, and as answers of selftest --qualify
    REJECTED = 11
    UNPROVEN = 12
    WRAPPER_FAILED = 125  # of run, as env(1): the command was not started, and it is our fault or a wrong option
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    INTERRUPTED = 130
    BROKEN_PIPE = 141


_OF_STATUS = {Status.FLAGGED: Exit.FLAGGED, Status.REJECTED: Exit.REJECTED, Status.UNPROVEN: Exit.UNPROVEN}

# The answers of `selftest --qualify`, for provisioning: what windows of this instance would be worth beside the reference's.
OF_COMPARABLE: Mapping[str, Exit] = {
    "comparable": Exit.OK,
    "partly": Exit.FLAGGED,
    "not-comparable": Exit.REJECTED,
    "unknown": Exit.UNPROVEN,
}


def worst_code(found: set[Status], fail_on: frozenset[Status]) -> Exit:
    """Return the code of the worst status that --fail-on names; OK if there is none."""
    named = found & fail_on
    return _OF_STATUS[max(named, key=lambda status: status.badness)] if named else Exit.OK


def list_statuses(verdicts: Iterable[Verdict]) -> set[Status]:
    """What --fail-on asks about: each status, and unproven too where a hazard was found but required evidence is missing."""
    found = list(verdicts)
    return {verdict.status for verdict in found} | {Status.UNPROVEN for verdict in found if verdict.why}


class ReaderLeft(Exception):  # noqa: N818 - no error: `| head` has what it wanted
    """Whoever read our output has gone.  Not BrokenPipeError, of which click makes an exit code of its own."""


class Stop(Exception):  # noqa: N818 - not every stop is an error: a command may end with a code of its own
    """Ends a command with a code and one line on stderr; ``name`` is for programs that read --json."""

    def __init__(self, code: Exit, message: str, name: str) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
