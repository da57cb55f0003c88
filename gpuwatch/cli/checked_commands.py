"""Click's commands and groups that refuse a mistyped option value and suggest the nearest command."""

from collections.abc import Mapping, Sequence
from typing import Any

import click


class CheckedCommand(click.Command):
    """A command that refuses ``--`` and its own options as the value of an option, because the value was forgotten."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and not ctx.resilient_parsing:
            given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
            self._refuse_options_as_values(ctx, given)
        return super().parse_args(ctx, args)

    def _refuse_options_as_values(self, ctx: click.Context, given: Mapping[str, Any]) -> None:
        takers = [
            each for each in self.get_params(ctx) if isinstance(each, click.Option) and not each.is_flag and not each.count
        ]
        known = {"--"} | {option for each in self.get_params(ctx) for option in each.opts if option.startswith("--")}
        for option in takers:
            values = given.get(option.name or "")
            found = next((value for value in (values if isinstance(values, list) else [values]) if value in known), None)
            if found is not None:
                raise click.UsageError(f"{option.opts[0]}: expected {option.make_metavar(ctx)}, found {found!r}", ctx)


class CheckedGroup(CheckedCommand, click.Group):
    """A group of such commands."""

    command_class = CheckedCommand

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and not ctx.resilient_parsing and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(f"unknown command {args[0]!r}; {_meant(args[0], names)}", ctx)
        return super().resolve_command(ctx, args)


_MEANT = {"check": "validate", "list": "audit", "ls": "audit"}  # too far apart for a suggestion by spelling


def _meant(word: str, names: Sequence[str]) -> str:
    from gpuwatch.sources import nearest  # a slow import that only a mistake needs

    return nearest(_MEANT[word] if _MEANT.get(word) in names else word, names)
