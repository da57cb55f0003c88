"""The client's side of marks: windows that the daemon holds between two processes."""

from __future__ import annotations

import msgspec

from gpuwatch.client.connection import VERDICT_S, Client
from gpuwatch.client.conversation import outdated, readable_policy
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DaemonError
from gpuwatch.wire.messages import Closed, CloseMark, FactValue, JudgedReply, Opened, OpenMark


def begin(client: Client, settings: Settings, request: OpenMark) -> Opened:
    """Begin a mark.

    Raises DaemonError: when the daemon refuses the mark, or is too old for marks.
    """
    _check(client, settings)
    policy = readable_policy(client.welcome, request.policy)
    return client.exchange(msgspec.structs.replace(request, policy=policy), Opened)


def end(client: Client, settings: Settings, name: str, uid: int | None, declared: dict[str, FactValue]) -> str:
    """End a mark and return its run.

    Raises DaemonError: as ``begin``, and when there is no such mark.
    """
    _check(client, settings)
    return client.exchange(CloseMark(name=name, uid=uid, declared=declared), Closed).run


def verdict(client: Client, run_id: str) -> JudgedReply:
    """Wait for the verdicts of a mark that ended.

    Raises DaemonError: as ``Client.verdicts``, and when no verdict arrived in time.
    """
    judged = client.verdicts(run_id, wait_s=VERDICT_S)
    if judged.status in ("open", "closing", "judging"):
        raise DaemonError(f"no verdict within {VERDICT_S:g} s; try later: gpuwatch show {run_id}", "silent")
    return judged


def _check(client: Client, settings: Settings) -> None:
    if not client.welcome.holds_marks:
        raise DaemonError(f"mark: {outdated(client.welcome, settings)}", "outdated")
