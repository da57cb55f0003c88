"""gpuwatch mark: a window that one process begins and another ends, for scripts, Make, hyperfine and batch systems."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from annotate.output.report import plain
from annotate.user_policy import Policy
from annotate.verdict import Status, Verdict
from gpuwatch.cli import chosen_gpus, options, output, rejudge
from gpuwatch.cli.checked_commands import CheckedCommand, CheckedGroup
from gpuwatch.cli.claimed_number import ClaimOptions, claimed_facts, work_facts, work_option
from gpuwatch.cli.exit_codes import list_statuses, worst_code
from gpuwatch.client import held_mark
from gpuwatch.client.connection import Client, connect_and
from gpuwatch.client.stated_claim import StatedClaim, describe
from gpuwatch.client.window_tags import WindowTags, check_tags
from gpuwatch.config.quantities import QuantityError, duration_ns
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DaemonError, StoreError, TrustedMarkError, UsageError
from gpuwatch.wire.mark_bounds import LONGEST_S, ROOTS_COUNT, SHORTEST_S
from gpuwatch.wire.messages import NAME_LENGTH, OpenMark

_F = TypeVar("_F", bound=Any)
_LOOKED_COUNT = 20  # newest windows of the name to search for a mark that ended with its daemon


@dataclass(frozen=True, slots=True)
class _TermOptions:
    """The values of --expires, --own, --pid and --uid."""

    expires: str
    own: str | None
    pids: tuple[int, ...]
    uid: int | None

    def terms(self) -> dict[str, Any]:
        """Return the fields of the mark's request.  Raises UsageError: for wrong values."""
        try:
            expires_s = duration_ns(self.expires) / 1e9
        except QuantityError as error:
            raise UsageError(f"--expires: {error}") from error
        if not SHORTEST_S <= expires_s <= LONGEST_S:
            raise UsageError(f"--expires: expected {SHORTEST_S:g} s to {LONGEST_S / 86_400:g} d, found {self.expires}")
        if self.pids and self.own not in (None, "pids"):
            raise UsageError(f"--pid: expected no --own with it, found --own {self.own}; leave one out")
        if len(self.pids) > ROOTS_COUNT:
            raise UsageError(f"--pid: expected at most {ROOTS_COUNT} processes, found {len(self.pids)}")
        own = "pids" if self.pids else self.own or "session"
        return {"expires_s": expires_s, "own": own, "pids": list(self.pids), "uid": self.uid}


@click.group("mark", cls=CheckedGroup, short_help="Begin and end a window from two commands.")
@options.settings_options
def command() -> None:
    """Begin and end a window by name, from two processes.

    The daemon holds the window between the two commands, even when the process that began the window ends.  A window that
    expires ends as unproven.
    """


def _uid_option(command: _F) -> _F:
    return click.option("--uid", type=options.UID, help="Act for this owner of the mark; for root only.")(command)


@command.command(
    "begin", cls=CheckedCommand, short_help="Begin a window.", epilog="Example: gpuwatch mark begin train --expires 8h"
)
@click.argument("name")
@click.option(
    "--expires", metavar="DURATION", default="1h", show_default=True, help="End the window as unproven after this time."
)
@click.option(
    "--own",
    type=click.Choice(["session", "user"]),
    help="Measure the work of this session (default), or of all processes of the user.",
)
@click.option("--pid", "pids", type=options.PID, multiple=True, help="Measure only this process and its children. Repeatable.")
@_uid_option
@options.gathered(_TermOptions, "term_options")
@work_option
@options.gpu_option("Judge this GPU: index, UUID or part of it, PCI address. Repeatable.")
@options.policy_options
@options.stated_options
@options.settings_options
def begin(
    name: str,
    term_options: _TermOptions,
    work: str | None,
    gpus: tuple[str, ...],
    policy_options: options.PolicyOptions,
    stated_options: options.StatedOptions,
) -> None:
    """Begin the window NAME; `gpuwatch mark end NAME` ends it and prints its verdict.

    By default the window measures the work of the session: the terminal, script or service that runs this command, and all
    processes started there.  Other sessions count as neighbours, even those of the same user.
    """
    settings, name, terms = options.settings(), _checked(name), term_options.terms()
    ClaimOptions(None, work).check(is_untrusted=stated_options.untrusted)
    policy = settings.complete(policy_options.policy() or Policy())
    chosen = chosen_gpus.choose_of_daemon(gpus, settings) if gpus else ()
    stated = stated_options.arguments()
    tags = WindowTags(check_tags(stated.pop("tags"))).at_opening(None)
    declared = StatedClaim.checked(**stated).facts() | work_facts(work) | {"whole_program": True}
    request = OpenMark(
        claim=policy.claim.value,
        label=name,
        policy=policy.to_dict(),
        gpus=list(chosen) or None,
        declared=declared,
        tags=tags,
        name=name,
        **terms,
    )
    client, opened = connect_and(lambda client: held_mark.begin(client, settings, request), settings)
    client.close()
    if opened.warning:
        output.say(f"gpuwatch: {opened.warning}")
    # A command that entered its container, as by `docker exec`, has no session there.
    session = "this session" if os.getsid(0) else "all your commands that entered this container"
    own = {"session": session, "user": "all processes of the user", "pids": "the given processes"}[terms["own"]]
    output.say(f"gpuwatch: mark {plain(name)} is open for {term_options.expires}, measuring {own} (run {opened.run})")


@command.command(
    "end",
    cls=CheckedCommand,
    short_help="End a window and print its verdict.",
    epilog="Example: gpuwatch mark end train --fail-on rejected",
)
@click.argument("name")
@click.option("--calls", type=options.COUNT, help="Give the number of calls that untrusted code claims.")
@click.option("--call-time", metavar="DURATION", help="Give the time of a call that untrusted code claims, such as 203us.")
@_uid_option
@options.fail_on_option
@options.json_option
@options.settings_options
def end(name: str, calls: int | None, call_time: str | None, uid: int | None, fail_on: str | None, as_json: bool) -> int:
    """End the window NAME, wait for the judge (about a second), and print the verdict."""
    failing, settings = options.fail_on(fail_on), options.settings()
    declared = claimed_facts(calls, call_time)
    client: Client | None = None
    try:
        client, run_id = connect_and(lambda client: held_mark.end(client, settings, _checked(name), uid, declared), settings)
        with client:
            judged = held_mark.verdict(client, run_id)
        verdicts = tuple(map(Verdict.from_dict, judged.verdicts)) or (_unproven(name, judged.why),)
    except DaemonError as error:
        if error.code == TrustedMarkError.code:
            raise UsageError(str(error)) from error
        run_id, verdicts = _lost(name, os.getuid() if uid is None else uid, settings, error)
        declared = {}  # the window ended before these facts reached the daemon
    if as_json:
        output.emit_json({"run": run_id, "label": name, "verdicts": [verdict.to_dict() for verdict in verdicts]})
    else:
        show = f"gpuwatch show {run_id}{options.repeated(settings)}"
        output.emit(output.lay_out(verdicts, sys.stdout, more=f"`{show}` shows details"))
        if stated := describe(declared):
            output.say(f"  stated: {stated}")
    return worst_code(list_statuses(verdicts), failing)


def _checked(name: str) -> str:
    if not 0 < len(name) <= NAME_LENGTH:
        raise UsageError(f"NAME: expected 1 to {NAME_LENGTH} characters, found {len(name)}")
    return name


def _unproven(name: str, why: str) -> Verdict:
    return Verdict(status=Status.UNPROVEN, findings=(), claim="sustained", label=name, why=why, begin_ns=0, end_ns=0)


def _lost(name: str, uid: int, settings: Settings, error: DaemonError) -> tuple[str, tuple[Verdict, ...]]:
    """Return run and verdicts of a mark that a daemon ended without `mark end`.  Raises the error: without such a mark."""
    from gpuwatch.cli import open_store

    try:
        with open_store.reader(settings) as store:
            runs = store.runs(label=name, limit=_LOOKED_COUNT)
    except StoreError:
        raise error from None
    held = next((run for run in runs if run.uid == uid and "own_processes" in run.declared), None)
    if error.code != UsageError.code or held is None or not (why := held.declared.get("abandoned")):
        raise error
    why = "was lost when its daemon ended" if why is True else f"is not open: {plain(str(why))}"
    output.say(f"gpuwatch: mark {plain(name)} {why}; its window is unproven")
    return held.id, rejudge.stored(held)
