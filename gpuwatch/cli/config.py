"""gpuwatch config: the settings in force with their origins, and checks of files."""

import os
from typing import Any

import click

from annotate.output.report import plain
from gpuwatch.cli import options, output
from gpuwatch.cli.checked_commands import CheckedGroup
from gpuwatch.config import settings as config
from gpuwatch.config.keys import KEYS, Key
from gpuwatch.errors import UsageError


@click.group("config", cls=CheckedGroup, short_help="Show and check the settings.")
@options.settings_options
def command() -> None:
    """Show and check settings.  Precedence: options, GPUWATCH_* variables, the user's file, the system's file, defaults."""


@command.command("show", short_help="Print the settings in force.", epilog="Example: gpuwatch config show --origin")
@click.option("--origin", is_flag=True, help="Also name the origin of each value.")
@options.json_option
@options.settings_options
def show(origin: bool, as_json: bool) -> None:
    """Print the settings in force, in the form of a settings file."""
    settings = options.settings()
    _warn()
    if as_json:
        output.emit_json({"settings": {key.name: _entry(settings, key) for key in KEYS}})
        return
    table = ""
    for key in KEYS:
        head, _, name = key.name.rpartition(".")
        if head != table:
            output.emit(f"\n[{head}]")
            table = head
        line = f'{name} = "{key.write(getattr(settings, key.field))}"'
        output.emit(f"{line:<44} # {settings.origin(key.field)}" if origin else line)


def _entry(settings: config.Settings, key: Key) -> dict[str, Any]:
    value = getattr(settings, key.field)
    plain = value if isinstance(value, int | float | dict) else str(value)
    return {key.field: plain, "text": key.write(value), "origin": settings.origin(key.field), "meaning": key.meaning}


@command.command(
    "validate", short_help="Check a file.", epilog="Example: gpuwatch config validate ~/.config/gpuwatch/config.toml"
)
@click.argument("file", required=False)
@options.json_option
@options.settings_options
def validate(file: str | None, as_json: bool) -> None:
    """Check every key and value of FILE, or of the files in force.  Exits 2 if one is wrong."""
    flags = {**click.get_current_context().meta.get(options.FLAGS, {}), **({"config": file} if file else {})}
    *others, last = config.list_errors(flags, os.environ) or [""]
    if last and as_json:
        raise UsageError("; ".join([*others, last]))
    for error in others:
        output.say(f"gpuwatch: {plain(error)}")
    if last:
        raise UsageError(last)
    options.settings({"config": file} if file else None)
    _warn()
    read = config.files(flags, os.environ)
    text = "\n".join(f"{path}: right" for path in read) or "no configuration file: defaults are in force"
    output.emit_either({"valid": True, "files": [str(path) for path in read]}, text, as_json=as_json)


@command.command("path", short_help="Print the files that gpuwatch reads.", epilog="Example: gpuwatch config path")
@options.json_option
@options.settings_options
def path(as_json: bool) -> None:
    """Print the settings files that gpuwatch reads; the first wins."""
    paths = {str(config.user_config(os.environ)): "user", str(config.SYSTEM_CONFIG): "system"}
    if named := click.get_current_context().meta.get(options.FLAGS, {}).get("config"):
        paths = {named: "--config"}
    elif named := os.environ.get("GPUWATCH_CONFIG"):
        paths = {named: "GPUWATCH_CONFIG"}
    data = {"files": [{"path": name, "of": of} for name, of in paths.items()]}
    output.emit_either(data, "\n".join(paths), as_json=as_json)


def _warn() -> None:
    for name in config.unknown_variables(os.environ):
        output.say(f"gpuwatch: {name} is set, but is not a setting; list them with: gpuwatch config show")
