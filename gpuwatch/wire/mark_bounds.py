"""The bounds of a mark, a window that the daemon holds open between two processes under a name."""

from typing import Literal, TypeAlias

ROOTS_COUNT = 64  # the largest number of processes that a mark can name
SHORTEST_S, LONGEST_S = 1.0, 31 * 86_400.0  # time until expiry; a recording holds no window longer than the maximum
Own: TypeAlias = Literal["session", "user", "pids"]  # processes whose GPU work belongs to the mark, each with descendants
