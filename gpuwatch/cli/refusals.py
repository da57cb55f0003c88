"""click's refusals in the form of all others: expected what, found what, what to do."""

from __future__ import annotations

import click


def words(error: click.ClickException) -> str:
    """Return one line: click's own, except for a missing argument, where it names only the argument."""
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Argument) and error.ctx is not None:
        path = error.ctx.command_path
        wanted = error.param.make_metavar(error.ctx)
        return f"{path.partition(' ')[2]}: expected {wanted}, found nothing; see: {path} --help"
    return error.format_message()
