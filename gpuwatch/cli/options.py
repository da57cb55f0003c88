"""Options that several commands share: settings, claim and policy, GPUs, --json, --fail-on."""

import functools
import importlib
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from annotate.claims import Claim
from annotate.ranges import REFERENCE_CLOCKS
from annotate.user_policy import Policy
from annotate.verdict import Status
from gpuwatch.cli.output import say
from gpuwatch.client.stated_claim import StatedClaim
from gpuwatch.client.window_tags import read_tags
from gpuwatch.config.keys import BY_NAME
from gpuwatch.config.paths import default_socket
from gpuwatch.config.quantities import QuantityError, duration_ns, reference_clock, share_ratio
from gpuwatch.config.settings import Settings, load
from gpuwatch.errors import UsageError

# Types of numbers that several commands accept; a value out of range is a mistake.
PID = click.IntRange(1, 1 << 22)  # PID_MAX_LIMIT of Linux
UID = click.IntRange(0, (1 << 32) - 2)  # Linux reserves 2^32 - 1 for "no user"
CLOCK_MHZ = click.FloatRange(REFERENCE_CLOCKS.least, REFERENCE_CLOCKS.most)
COUNT = click.IntRange(1, (1 << 53) - 1)  # the largest integer that every JSON reader keeps exact

_F = TypeVar("_F", bound=Callable[..., Any])
_Amount = TypeVar("_Amount")
FLAGS = "gpuwatch.flags"  # key of the given settings in a click context
LIBRARY_SOCKET = "GPUWATCH_NVTX_SOCKET"  # which the C library prefers to the setting

_PRECISION_HELP = "Flag numbers that vary from window to window by more than this, such as 2%."
_REFERENCE_HELP = "State the time at one clock at this SM clock, such as 1410, or MODEL=MHZ. Default: the model's."

_SETTINGS = (
    ("source", "SOURCE", "Read GPUs from auto, nvml, simulated[:SCENE,…] or replay:PATH."),
    ("state", "DIR", "Keep the store in this folder."),
    ("socket", "PATH", "Connect to the daemon at this socket."),
    ("config", "FILE", "Read this settings file instead of the user's and the system's."),
    ("log_level", "LEVEL", "Log at debug, info, warning or error."),
)


def completed_by(name: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return a completion function that imports ``gpuwatch.cli.completions`` on its first call."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        completions = importlib.import_module("gpuwatch.cli.completions")
        found: list[str] = getattr(completions, name)(context, parameter, incomplete)
        return found

    return complete


def keep_flag(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Store the value of an option that is a setting, as a callback of click."""
    # ``meta`` is one dictionary for a command and its group: the option nearer to the command wins.
    if value is not None and parameter.name is not None:
        context.meta.setdefault(FLAGS, {})[parameter.name] = value


def settings_options(command: _F) -> _F:
    """Add --source, --state, --socket, --config and --log-level to a group or command."""
    for name, metavar, text in reversed(_SETTINGS):
        flag = f"--{name.replace('_', '-')}"
        complete = completed_by("sources") if name == "source" else None
        command = click.option(
            flag, name, metavar=metavar, help=text, expose_value=False, callback=keep_flag, shell_complete=complete
        )(command)
    return command


def settings(overrides: Mapping[str, str] | None = None, *, scenes: bool = True) -> Settings:
    """Load the settings of the running command.  Raises UsageError: for wrong settings and, with ``scenes``, unknown scenes."""
    flags = click.get_current_context().meta.get(FLAGS, {})
    found = load({**flags, **(overrides or {})})
    kind, _, argument = found.source.partition(":")
    if scenes and kind == "simulated" and argument:
        from gpuwatch.sources.simulated.simulated_source import scenes_named

        scenes_named(argument)  # a daemon would only report that it watches no GPU
    return found


def settings_environment(settings: Settings) -> dict[str, str]:
    """Return the variables that pass these settings and the daemon's socket to a command.

    The C library reads no settings file and derives no socket from a source, so it has its own variable.  The variable of the
    setting would lead a gpuwatch in the command, with another source, to this daemon.
    """
    found = {BY_NAME[name].variable: str(value) for name, value in settings.given.items() if name in BY_NAME}
    if "config" in settings.given:
        found["GPUWATCH_CONFIG"] = str(Path(settings.given["config"]).absolute())
    if settings.socket != default_socket("auto", os.environ) or LIBRARY_SOCKET in os.environ:
        found[LIBRARY_SOCKET] = str(settings.socket)
    return found


def repeated(settings: Settings) -> str:
    """Return the options with which a command in another shell finds the same store; empty for default settings."""
    found = [
        f"--{name}={getattr(settings, name)}"
        for name in ("source", "state", "socket")
        if settings.origin(name).startswith(("--", "GPUWATCH_"))
    ]
    if file := settings.given.get("config") or os.environ.get("GPUWATCH_CONFIG"):
        found.append(f"--config={Path(file).absolute()}")
    return "".join(f" {shlex.quote(option)}" for option in found)


def gpu_option(help_text: str) -> Callable[[_F], _F]:
    """Add --gpu, which may be repeated, as ``gpus``."""
    return click.option("--gpu", "gpus", metavar="GPU", multiple=True, help=help_text)


def back_option(command: _F) -> _F:
    """Add -1 to -9 and --last as ``back``, which counts windows from the latest; None without the option."""
    for count in range(9, 0, -1):
        names = ("-1", "--last") if count == 1 else (f"-{count}",)
        text = "Use the latest window; -2 is the one before, down to -9."
        command = click.option(*names, "back", flag_value=count, type=int, default=None, hidden=count > 1, help=text)(command)
    return command


def json_option(command: _F) -> _F:
    return click.option("--json", "as_json", is_flag=True, help="Write JSON to standard output.")(command)


def gathered(record: type[Any], name: str) -> Callable[[_F], _F]:
    """Gather the options named as a record's fields into one argument, so that a command has few parameters."""
    names = [each.name for each in fields(record)]

    def decorate(command: _F) -> _F:
        @functools.wraps(command)
        def call(*arguments: Any, **given: Any) -> Any:
            return command(*arguments, **{name: record(**{each: given.pop(each) for each in names})}, **given)

        return cast("_F", call)

    return decorate


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """The values of --claim, --accept, --limit, --tolerance, --precision and --reference-clock."""

    claim: str | None
    accept: tuple[str, ...]
    limits: tuple[str, ...]
    tolerance: str | None
    precision: str | None
    reference_clock: str | None

    def policy(self) -> Policy | None:
        """Make the policy; None without options.  Raises UsageError, UnknownNameError, InvalidValueError: for wrong options."""
        given = (self.accept, self.limits, self.tolerance, self.precision, self.reference_clock)
        if self.claim is None and not any(given):
            return None
        by_rule: dict[str, dict[str, float]] = {}
        for text in self.limits:
            rule, limit, amount = _read_limit(text)
            by_rule.setdefault(rule, {})[limit] = amount
        names = frozenset(name.strip() for text in self.accept for name in text.split(","))
        claim = Claim.of(self.claim) if self.claim is not None else Claim.SUSTAINED
        thresholds = {name: read_share(f"--{name}", getattr(self, name)) for name in ("tolerance", "precision")}
        policy = Policy(claim=claim, accept=names, limits=by_rule)
        for rule, amounts in by_rule.items():
            for retired in amounts.keys() - policy.limits.get(rule, {}).keys():
                say(f"gpuwatch: --limit {rule}.{retired} has no effect since version 0.2: `gpuwatch explain {rule}`")
        for name, ratio in thresholds.items():
            policy = policy if ratio is None else policy.with_threshold(name, ratio)
        clock = _read("--reference-clock", self.reference_clock, reference_clock)
        return policy if clock is None else replace(policy, reference_clock_mhz=clock)


def read_share(option: str, text: str | None) -> float | None:
    """Read an option's share, such as 0.5% or 0.005; None for None.  Raises UsageError: for other text."""
    return _read(option, text, share_ratio)


def _read(option: str, text: str | None, read: Callable[[str], _Amount]) -> _Amount | None:
    try:
        return None if text is None else read(text)
    except QuantityError as error:
        raise UsageError(f"{option}: {error}") from error


def _read_limit(text: str) -> tuple[str, str, float]:
    name, equals, value = text.partition("=")
    rule, dot, limit = name.strip().rpartition(".")
    try:
        amount = float(value)
    except ValueError:
        amount = float("nan")
    if not equals or not dot or amount != amount:
        raise UsageError(f"--limit: expected RULE.NAME=NUMBER, found {text!r}; `gpuwatch explain RULE` lists a rule's limits")
    return rule, limit, amount


def _repeatable(flag: str, name: str, metavar: str, complete: str, text: str) -> Callable[[_F], _F]:
    completion = completed_by(complete)
    return click.option(flag, name, metavar=metavar, multiple=True, shell_complete=completion, help=f"{text} Repeatable.")


def policy_options(command: _F) -> _F:
    """Add the options of ``PolicyOptions`` as one argument ``policy_options``."""
    return policy_options_with("Flag numbers that disturbances can have changed by more than this. Default: 1%.")(command)


def policy_options_with(tolerance_help: str) -> Callable[[_F], _F]:
    """Return ``policy_options`` with this help text for --tolerance."""

    def decorate(command: _F) -> _F:
        command = gathered(PolicyOptions, "policy_options")(command)
        for option in (
            click.option("--reference-clock", metavar="MHZ", help=_REFERENCE_HELP),
            click.option("--precision", metavar="SHARE", help=_PRECISION_HELP),
            click.option("--tolerance", metavar="SHARE", help=tolerance_help),
            _repeatable("--limit", "limits", "RULE.NAME=VALUE", "limits", "Change a limit of a rule."),
            _repeatable("--accept", "accept", "RULE", "rules", "Accept this rule's hazard; it stays in the verdict."),
            click.option("--claim", metavar="CLAIM", help="Judge as sustained (default), burst or fixed-clock."),
        ):
            command = option(command)
        return command

    return decorate


@dataclass(frozen=True, slots=True)
class StatedOptions:
    """The values of --locked-mhz, --every, --varies, --untrusted and --tag."""

    locked_mhz: float | None
    every: str | None
    varies: bool
    untrusted: bool
    tags: tuple[str, ...]

    def arguments(self) -> dict[str, Any]:
        """Return the values as arguments of ``window()``.  Raises UsageError: for wrong amounts and tags."""
        every_ns = _read("--every", self.every, duration_ns)
        every_s = None if every_ns is None else every_ns / 1e9
        stated = {"locked_mhz": self.locked_mhz, "every": every_s, "varies": self.varies, "untrusted": self.untrusted}
        try:
            StatedClaim.checked(**stated)
        except UsageError as error:
            raise UsageError(f"--{str(error).replace('locked_mhz', 'locked-mhz', 1)}") from error
        return {**stated, "tags": read_tags(self.tags)}


def stated_options(command: _F) -> _F:
    """Add --locked-mhz, --every, --varies, --untrusted and --tag as one argument ``stated_options``."""
    command = tag_option("Store this tag with the window, such as team=vision. Repeatable.")(
        gathered(StatedOptions, "stated_options")(command)
    )
    for option in (
        click.option("--untrusted", is_flag=True, help="State that the code may cheat: only the daemon's evidence counts."),
        click.option("--varies", is_flag=True, help="State that times vary by design."),
        click.option("--every", metavar="DURATION", help="State the time between the starts of two calls, such as 20ms."),
        click.option("--locked-mhz", type=float, metavar="MHZ", help="State the SM clock that you locked, such as 1500."),
    ):
        command = option(command)
    return command


def tag_option(help_text: str) -> Callable[[_F], _F]:
    """Add --tag, which may be repeated, as ``tags``."""
    return click.option("--tag", "tags", metavar="KEY=VALUE", multiple=True, help=help_text)


def statuses(option: str, text: str | None) -> frozenset[Status]:
    """Read a comma-separated set of statuses.  Raises UsageError: for an unknown status."""
    names = [] if text is None else [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name.lower() not in list(Status)]:
        raise UsageError(f"{option}: expected some of {', '.join(Status)}, separated by commas, found {unknown[0]!r}")
    return frozenset(Status(name.lower()) for name in names)


def fail_on(text: str | None) -> frozenset[Status]:
    """Read the statuses of --fail-on.  Raises UsageError: for an unknown status, and for valid."""
    named = statuses("--fail-on", text)
    if Status.VALID in named:
        raise UsageError("--fail-on: expected some of flagged, rejected, unproven, found 'valid', which is not a failure")
    return named


def fail_on_option(command: _F) -> _F:
    text = (
        "Exit 10, 11 or 12 for the worst of these: flagged, rejected, unproven. Comma-separated. unproven includes flagged or "
        "rejected windows that lack required evidence."
    )
    return click.option("--fail-on", metavar="STATUSES", help=text)(command)
