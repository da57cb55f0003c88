"""The terms of a mark: a window that the daemon holds open between two processes, under a name."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

MARK_LENGTH = 128  # of a name, which is the window's label too
ROOTS_COUNT = 64
SHORTEST_S, LONGEST_S = 1.0, 31 * 86_400.0  # the longest recording that is read

Own: TypeAlias = Literal["session", "user", "pids"]
_Pid: TypeAlias = Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]
_Uid: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 32) - 2)]
MarkName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MARK_LENGTH)]
Owner: TypeAlias = _Uid | None  # None: the user who asks; only root names another


class MarkTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Its name, its expiry, its owner, and whose work on the GPU is the window's own.

    ``session``: the processes of the session that the asking process is in.  ``user``: all processes of the owner.
    ``pids``: these processes.  Each with descendants.
    """

    name: MarkName
    expires_s: Annotated[float, Meta(ge=SHORTEST_S, le=LONGEST_S)]
    own: Own = "session"
    pids: Annotated[list[_Pid], Meta(max_length=ROOTS_COUNT)] = []
    uid: Owner = None
