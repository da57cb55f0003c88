"""The verdicts of many windows, requested over shared connections."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from annotate.verdict import Verdict
from gpuwatch.client.conversation import Connections
from gpuwatch.client.window import Window
from gpuwatch.errors import UsageError
from gpuwatch.utf8 import found_words


def verdicts(windows: Iterable[Window]) -> tuple[Verdict, ...]:
    """Return the deciding verdicts of many windows.

    Args:
        windows: Windows whose blocks have ended.

    Returns:
        The verdict of each window's worst GPU, in the order of ``windows``.

    Raises UsageError: when an element is not a window, or the block of a window has not ended.
    Raises TypeError: when ``windows`` is not iterable, such as a single window.

    Example:
        >>> windows = []
        >>> for size in (1_000, 10_000):
        ...     with gpuwatch.window(f"sum of {size}") as w:
        ...         total = sum(range(size))
        ...     windows.append(w)
        >>> [verdict.label for verdict in gpuwatch.verdicts(windows)]
        ['sum of 1000', 'sum of 10000']
    """
    found = tuple(windows)
    for each in found:
        if not isinstance(each, Window):
            raise UsageError(f"verdicts: expected windows, found {found_words(each)}")
        if each.end_ns is None:
            raise UsageError("verdicts: expected windows whose `with` block has ended, found one whose block has not")
    with closing(Connections()) as connections:
        # Start with the last window: the other verdicts are usually ready before the last one.
        judged = {id(each): each.wait_for_verdicts(connections)[0] for each in reversed(found)}
    return tuple(judged[id(each)] for each in found)
