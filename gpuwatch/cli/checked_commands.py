"""Click commands and groups that check every value and refuse a wrong one with a message of ``refusals``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from gpuwatch.cli import refusals

_WORDS = frozenset({"flags_a", "flags_b"})  # options that hold several words, and may be empty


class CheckedCommand(click.Command):
    """A command that refuses values of a wrong type, empty values, and ``--`` or an option in place of a value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        try:
            given, left, _ = self.make_parser(ctx).parse_args(args=list(args))
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click raises some without a context
            raise
        self._refuse_options_as_values(ctx, given)
        self._refuse_empty(ctx, given)
        try:
            rest = super().parse_args(ctx, args)
        except click.MissingParameter:
            raise
        except click.BadParameter as error:
            if error.param is None or (found := refusals.wrong_value(error.param, given, ctx)) is None:
                raise
            raise refusals.of_value(error.param, found, ctx) from error
        except click.UsageError as error:
            # Click reports leftover words only after it has handled --help.
            raise (refusals.of_more_words(self, left, ctx) if left and type(error) is click.UsageError else error) from error
        for parameter in self.get_params(ctx):
            value = ctx.params.get(parameter.name or "")
            if isinstance(value, float) and not math.isfinite(value):  # click accepts nan, and inf without a range
                raise refusals.of_value(parameter, str(value), ctx)
        return rest

    def _refuse_options_as_values(self, ctx: click.Context, given: Mapping[str, Any]) -> None:
        known = {"--"} | {option for each in self.get_params(ctx) for option in each.opts if option.startswith("--")}
        for parameter, value in _values(self.get_params(ctx), given):
            if isinstance(parameter, click.Option) and value in known:
                raise refusals.of_text(parameter, value, ctx)

    def _refuse_empty(self, ctx: click.Context, given: Mapping[str, Any]) -> None:
        """Refuse empty text: an empty name matches nothing, and an empty path is the current folder."""
        for parameter, value in _values(self.get_params(ctx), given):
            if parameter.name not in _WORDS and isinstance(value, str) and not value.strip():
                raise refusals.of_text(parameter, value, ctx)


class CheckedGroup(CheckedCommand, click.Group):
    """A group of checked commands."""

    command_class = CheckedCommand

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and not ctx.resilient_parsing and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(f"unknown command {args[0]!r}; {_meant(args[0], names)}", ctx)
        return super().resolve_command(ctx, args)


def _values(parameters: Sequence[click.Parameter], given: Mapping[str, Any]) -> Iterator[tuple[click.Parameter, Any]]:
    """Yield every value as typed, except flags.  For a command to run, yield only its name."""
    for each in parameters:
        if isinstance(each, click.Option) and (each.is_flag or each.count):
            continue
        value = given.get(each.name or "")
        values = value if isinstance(value, list | tuple) else [value]
        yield from ((each, one) for one in (values[:1] if each.type is click.UNPROCESSED else values))


_MEANT = {"check": "validate", "list": "audit", "ls": "audit"}  # spelled too differently for a suggestion


def _meant(word: str, names: Sequence[str]) -> str:
    from gpuwatch.sources import nearest  # a slow import that only a mistake needs

    return nearest(_MEANT[word] if _MEANT.get(word) in names else word, names)
