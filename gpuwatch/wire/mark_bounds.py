"""The bounds of a mark, a window that the daemon holds open between two processes under a name."""

from typing import Literal, TypeAlias

ROOTS_COUNT = 64  # of the processes that one names
SHORTEST_S, LONGEST_S = 1.0, 31 * 86_400.0  # until it expires; the longest recording that is read
Own: TypeAlias = Literal["session", "user", "pids"]  # whose work on the GPU is its own, each with descendants
