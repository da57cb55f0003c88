"""Limits on the daemon's memory for windows, per user and in total."""

from collections import Counter
from collections.abc import Iterable, Mapping

from gpuwatch.errors import UsageError
from gpuwatch.wire import messages

# Without a limit, windows opened faster than they are judged would fill any memory.
TRACKED_COUNT, OWN_COUNT = 4096, 2048
TIMES_COUNT = 10_000_000  # most times and spans of all tracked windows together; more are refused
OWN_TIMES_COUNT = 2_500_000  # per user of a shared daemon, so that other users' windows keep their times


def check_windows(uids: Iterable[int], uid: int) -> None:
    """Raise UsageError if this user, or all users together, have too many windows open or waiting for the judge."""
    by_uid = Counter(uids)
    if by_uid.total() >= TRACKED_COUNT or by_uid[uid] >= OWN_COUNT:
        raise UsageError(
            f"expected fewer than {OWN_COUNT} windows of your user and {TRACKED_COUNT} in all open or waiting for the judge,"
            f" found {by_uid[uid]} and {by_uid.total()}; wait for each verdict before you open the next window"
        )


def check_times(by_uid: Mapping[int, int], uid: int, count: int, *, is_shared: bool) -> None:
    """Raise UsageError if ``count`` more times of this user exceed the daemon's memory limits."""
    most_count, own_count, all_count = OWN_TIMES_COUNT if is_shared else TIMES_COUNT, by_uid[uid] + count, sum(by_uid.values())
    if own_count > most_count:
        raise UsageError(
            f"times: expected at most {most_count} in all your windows at once, found {own_count}; close some windows first"
        )
    if all_count + count > TIMES_COUNT:
        raise UsageError(
            f"times: expected at most {TIMES_COUNT} in all users' windows at once, found {all_count + count}; try later"
        )


def check_declared(request: messages.Open | messages.Close | messages.CloseMark) -> None:
    """Raise UsageError if a request's declared facts are too long together, or its tags too many or too long."""
    size = sum(len(name) + len(str(fact)) for name, fact in request.declared.items())
    if size > messages.DECLARED_LENGTH:
        raise UsageError(f"declared facts: expected at most {messages.DECLARED_LENGTH} characters, found {size}; shorten them")
    if not isinstance(request, messages.CloseMark):
        check_tags(request.tags)


def check_tags(tags: Mapping[str, str]) -> None:
    """Raise UsageError if a window's tags are too many or too long together."""
    length = sum(len(name) + len(text) for name, text in tags.items())
    if len(tags) > messages.TAGS_COUNT or length > messages.TAGS_LENGTH:
        most = f"{messages.TAGS_COUNT} with {messages.TAGS_LENGTH} characters together"
        raise UsageError(f"tags: expected at most {most}, found {len(tags)} with {length}; use fewer or shorter tags")
