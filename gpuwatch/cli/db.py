"""gpuwatch db: where the database lies, for sqlite-utils, Datasette and the like."""

import click

from gpuwatch.cli import open_store, options, output
from gpuwatch.cli.checked_commands import CheckedGroup


@click.group("db", cls=CheckedGroup, short_help="Print where the database lies.")
@options.settings_options
def command() -> None:
    """Show the store of every window: an SQLite file, with segments of raw readings beside it."""


@command.command("path", epilog="Example: gpuwatch db path")
@options.json_option
@options.settings_options
def path(as_json: bool) -> None:
    """Print the path of the database, whether it exists yet or not."""
    file = open_store.folder(options.settings()) / open_store.DATABASE
    output.emit_either({"path": str(file), "exists": file.exists()}, str(file), as_json=as_json)
