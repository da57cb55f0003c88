"""Options that several commands share, and what they say: settings, claim and policy, --json, --fail-on."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from annotate.claims import Claim
from annotate.policy import Policy
from annotate.verdict import Status
from gpuwatch.config import settings as config
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.config.settings import Settings

_F = TypeVar("_F", bound=Callable[..., Any])
_FLAGS = "gpuwatch.flags"

_SETTINGS = (
    ("source", "SOURCE", "auto, nvml, simulated[:SCENE,…] or replay:PATH."),
    ("state", "DIR", "Where the store lies."),
    ("socket", "PATH", "Where the daemon listens."),
    ("config", "FILE", "Read this file in place of the user's and the system's."),
    ("log_level", "LEVEL", "debug, info, warning or error."),
)


def keep_flag(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """The callback of an option that is a setting."""
    # ``meta`` is one dictionary for a command and its group: the option nearer to the command wins.
    if value is not None and parameter.name is not None:
        context.meta.setdefault(_FLAGS, {})[parameter.name] = value


def settings_options(command: _F) -> _F:
    """--source, --state, --socket, --config, --log-level: on the group, and accepted after every command too."""
    for name, metavar, text in reversed(_SETTINGS):
        flag = f"--{name.replace('_', '-')}"
        command = click.option(flag, name, metavar=metavar, help=text, expose_value=False, callback=keep_flag)(command)
    return command


def settings(overrides: Mapping[str, str] | None = None, *, scenes: bool = True) -> Settings:
    """The settings in force for the running command, with scenes that exist if ``scenes``.  Raises UsageError."""
    flags = click.get_current_context().meta.get(_FLAGS, {})
    found = config.load({**flags, **(overrides or {})})
    kind, _, argument = found.source.partition(":")
    if scenes and kind == "simulated" and argument:
        from gpuwatch.sources.simulated.simulated_source import scenes_named

        scenes_named(argument)  # a daemon that is started first would only say that it watches no GPU
    return found


def repeated(settings: Settings) -> str:
    """The options that make another command, typed in another shell, find the same store; empty under the defaults."""
    found = [
        f"--{name}={getattr(settings, name)}"
        for name in ("source", "state", "socket")
        if settings.origin(name).startswith(("--", "GPUWATCH_"))
    ]
    if file := settings.given.get("config") or os.environ.get("GPUWATCH_CONFIG"):
        found.append(f"--config={Path(file).absolute()}")
    return "".join(f" {shlex.quote(option)}" for option in found)


def json_option(command: _F) -> _F:
    return click.option("--json", "as_json", is_flag=True, help="Write JSON to standard output.")(command)


def policy_options(command: _F) -> _F:
    """--claim, --accept, --limit; ``policy()`` makes a Policy of them."""
    for option in (
        click.option(
            "--limit", "limits", metavar="RULE.NAME=VALUE", multiple=True, help="Override a rule's limit. Repeatable."
        ),
        click.option("--accept", metavar="RULE", multiple=True, help="Accept a hazard; it stays in the verdict. Repeatable."),
        click.option("--claim", metavar="CLAIM", help="sustained (default), burst or fixed-clock."),
    ):
        command = option(command)
    return command


def policy(claim: str | None, accept: Sequence[str], limits: Sequence[str]) -> Policy | None:
    """The policy the options say, None where they say nothing.  Raises UsageError, UnknownNameError, InvalidValueError."""
    if claim is None and not accept and not limits:
        return None
    of_rule: dict[str, dict[str, float]] = {}
    for text in limits:
        name, equals, value = text.partition("=")
        rule, dot, limit = name.strip().rpartition(".")
        try:
            amount = float(value)
        except ValueError:
            amount = float("nan")
        if not equals or not dot or amount != amount:
            raise UsageError(
                f"--limit: expected RULE.NAME=NUMBER, found {text!r}; `gpuwatch explain RULE` lists a rule's limits"
            )
        of_rule.setdefault(rule, {})[limit] = amount
    names = [name.strip() for text in accept for name in text.split(",")]
    return Policy(claim=Claim.of(claim) if claim is not None else Claim.SUSTAINED, accept=frozenset(names), limits=of_rule)


def statuses(option: str, text: str | None) -> frozenset[Status]:
    """A comma-separated set of statuses.  Raises UsageError."""
    found: set[Status] = set()
    for name in (text or "").split(",") if text is not None else ():
        try:
            found.add(Status(name.strip().lower()))
        except ValueError:
            known = ", ".join(Status)
            raise UsageError(f"{option}: expected some of {known}, separated by commas, found {name.strip()!r}") from None
    return frozenset(found)


def fail_on(text: str | None) -> frozenset[Status]:
    """The set that --fail-on names.  Raises UsageError."""
    named = statuses("--fail-on", text)
    if Status.VALID in named:
        raise UsageError("--fail-on: expected some of flagged, rejected, unproven, found 'valid', which is no failure")
    return named


def fail_on_option(command: _F) -> _F:
    text = (
        "Exit 10, 11 or 12 for the worst of flagged, rejected, unproven that is named. Comma-separated. unproven also means "
        "a flagged or rejected window whose required evidence is missing."
    )
    return click.option("--fail-on", metavar="STATUSES", help=text)(command)
