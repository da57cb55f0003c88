"""Errors for typed values, in place of click's texts: expected, found, and remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from gpuwatch.host import named_gpus
from gpuwatch.utf8 import found_words

_FOLDERS = ("DIR",)  # metavars of folders, which may be the current folder
_MEANINGS = {"GPU": named_gpus.MEANING}  # by metavar


def wrong_value(parameter: click.Parameter, given: Mapping[str, Any], context: click.Context) -> str | None:
    """Return the first typed value that a parameter's type refuses; None without one, or if the value is not text."""
    value = given.get(parameter.name or "")
    for each in value if isinstance(value, list | tuple) else [value]:
        try:
            parameter.type.convert(each, parameter, context)
        except click.BadParameter:
            return each if isinstance(each, str) else None
    return None


def of_value(parameter: click.Parameter, found: str, context: click.Context) -> click.UsageError:
    """Return the error for a value that is not a number, out of range, or not a choice."""
    return click.UsageError(f"{_name(parameter, context)}: expected {_kind(parameter)}, found {found_words(found)}", context)


def of_text(parameter: click.Parameter, found: str, context: click.Context) -> click.UsageError:
    """Return the error for an empty value, or for an option in place of a value."""
    wanted = parameter.make_metavar(context)
    words = repr(found) if found.strip() else "an empty text"
    here = "; for the current folder write ." if wanted in _FOLDERS and not found.strip() else ""
    return click.UsageError(
        f"{_name(parameter, context)}: expected {_MEANINGS.get(wanted, wanted)}, found {words}{here}", context
    )


def of_more_words(command: click.Command, words: Sequence[str], context: click.Context) -> click.UsageError:
    """Return the error for words that no argument accepts."""
    arguments = " ".join(each.make_metavar(context) for each in command.get_params(context) if isinstance(each, click.Argument))
    wanted = f"{arguments} and no more" if arguments else "options alone"
    return click.UsageError(f"{_before(context)}expected {wanted}, found {found_words(words[0])}{_see(context)}", context)


def refusal_words(error: click.ClickException) -> str:
    """Return an error of click as one line in gpuwatch's form."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return error.format_message()
    if isinstance(error, click.NoSuchOption):
        known = sorted(
            option for each in context.command.get_params(context) for option in each.opts if option.startswith("--")
        )
        from gpuwatch.sources import nearest  # a slow import that only a mistake needs

        meant = nearest(error.option_name, known)
        return f"{_before(context)}unknown option {found_words(error.option_name)}{f'; {meant}' if '?' in meant else _see(context)}"
    if isinstance(error, click.BadOptionUsage):
        option = next((each for each in context.command.get_params(context) if error.option_name in each.opts), None)
        if isinstance(option, click.Option) and (option.is_flag or option.count):
            return f"{error.option_name}: expected no value, found one{_see(context)}"
        wanted = option.make_metavar(context) if option is not None else "a value"
        return f"{error.option_name}: expected {wanted}, found nothing{_see(context)}"
    if isinstance(error, click.MissingParameter) and error.param is not None:
        name = _path(context) if isinstance(error.param, click.Argument) else error.param.opts[0]
        return f"{name}: expected {error.param.make_metavar(context)}, found nothing{_see(context)}"
    return error.format_message()


def _name(parameter: click.Parameter, context: click.Context) -> str:
    return _path(context) if isinstance(parameter, click.Argument) else parameter.opts[0]


def _kind(parameter: click.Parameter) -> str:
    kind, unit = parameter.type, f"{parameter.metavar}, " if parameter.metavar else ""
    match kind:
        case click.Choice():
            return f"one of {', '.join(map(str, kind.choices))}"
        case click.IntRange() | click.FloatRange():
            noun = "a whole number" if isinstance(kind, click.IntRange) else "a number"
            return f"{unit}{noun} from {_bound(kind.min)} to {_bound(kind.max)}"
        case _:
            return unit + ("a number" if kind.name == "float" else f"a {kind.name}")


def _bound(bound: float | None) -> str:
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def _path(context: click.Context) -> str:
    """Return the command without the program's name, which starts all messages anyway; without a command, the name."""
    return context.command_path.partition(" ")[2] or context.command_path


def _before(context: click.Context) -> str:
    return f"{_path(context)}: " if " " in context.command_path else ""


def _see(context: click.Context) -> str:
    return f"; see: {context.command_path} --help"
