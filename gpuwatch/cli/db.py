"""gpuwatch db: the path of the database, for sqlite-utils, Datasette and similar tools."""

import click

from gpuwatch.cli import open_store, options, output
from gpuwatch.cli.checked_commands import CheckedGroup


@click.group("db", cls=CheckedGroup, short_help="Print the path of the database.")
@options.settings_options
def command() -> None:
    """Show the store: an SQLite database of all windows, next to segments of raw readings."""


@command.command("path", epilog="Example: gpuwatch db path")
@options.json_option
@options.settings_options
def path(as_json: bool) -> None:
    """Print the path of the database, even before it exists."""
    file = open_store.folder(options.settings()) / open_store.DATABASE
    output.emit_either({"path": str(file), "exists": file.exists()}, str(file), as_json=as_json)
