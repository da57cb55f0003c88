"""Limits on the daemon's memory for windows, per user and in total."""

from collections import Counter
from collections.abc import Iterable, Mapping

from gpuwatch.errors import UsageError
from gpuwatch.wire import messages

# A window takes 17 kB.  Without a limit, windows opened faster than they are judged would fill any memory.
TRACKED_COUNT, OWN_COUNT = 4096, 2048
TIMES_COUNT = 10_000_000  # of all tracked windows: a quarter of a gigabyte; beyond it, new windows are judged without times
OWN_TIMES_COUNT = 2_500_000  # per user of a shared daemon, so that other users' windows keep their times


def check_windows(uids: Iterable[int], uid: int) -> None:
    """Raise UsageError if this user, or all users together, have more windows than the judge can finish in time."""
    by_uid = Counter(uids)
    if by_uid.total() >= TRACKED_COUNT or by_uid[uid] >= OWN_COUNT:
        raise UsageError(
            f"expected at most {OWN_COUNT} windows of yours open or waiting for the judge, found {by_uid[uid]} and"
            f" {by_uid.total()} in all; ask each for its verdict before the next one begins"
        )


def check_times(by_uid: Mapping[int, int], uid: int, count: int, *, is_shared: bool) -> None:
    """Raise UsageError if ``count`` more times of this user exceed the daemon's memory limits."""
    most_count, own_count, all_count = OWN_TIMES_COUNT if is_shared else TIMES_COUNT, by_uid[uid] + count, sum(by_uid.values())
    if own_count > most_count:
        raise UsageError(
            f"times: expected at most {most_count} of all your windows at once, found {own_count}; close some windows first"
        )
    if all_count + count > TIMES_COUNT:
        raise UsageError(
            f"times: expected at most {TIMES_COUNT} of all users' windows at once, found {all_count + count}; try later"
        )


def check_declared(request: messages.Open | messages.Close | messages.CloseMark) -> None:
    """Bound all declared facts together, and all tags; each message has its own bound.  Raises UsageError."""
    size = sum(len(name) + len(str(fact)) for name, fact in request.declared.items())
    if size > messages.DECLARED_LENGTH:
        raise UsageError(f"declared facts: expected at most {messages.DECLARED_LENGTH} characters, found {size}")
    if not isinstance(request, messages.CloseMark):
        check_tags(request.tags)


def check_tags(tags: Mapping[str, str]) -> None:
    """Raise UsageError if a window's tags are too many or too long together."""
    length = sum(len(name) + len(text) for name, text in tags.items())
    if len(tags) > messages.TAGS_COUNT or length > messages.TAGS_LENGTH:
        most = f"{messages.TAGS_COUNT} of {messages.TAGS_LENGTH} characters together"
        raise UsageError(f"tags: expected at most {most}, found {len(tags)} of {length}")
