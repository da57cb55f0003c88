"""gpuwatch doctor: checks of driver, GPUs, host, store and daemon, with remedies."""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict

import click

from gpuwatch.cli import options, output
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.cli.checks import Check, Grade
from gpuwatch.cli.exit_codes import Exit
from gpuwatch.config.settings import Settings
from gpuwatch.errors import SourceError

_FOUND_AT = 31  # column of a check's text
_COLOURS = {Grade.PASS: "green", Grade.WARN: "yellow", Grade.FAIL: "red"}


@click.command("doctor", cls=CheckedCommand, short_help="Check what this machine can prove.", epilog="Example: gpuwatch doctor")
@options.json_option
@options.settings_options
def command(as_json: bool) -> Exit:
    """Check driver, GPUs, host, store and daemon: PASS, WARN or FAIL, with the fix.  Exits 1 if anything fails.

    The check reads each GPU for about a second, to measure the cost of each driver call and the refresh periods of values.
    """
    settings = options.settings()
    found: list[Check] = []
    for check in _checks(settings):
        found.append(check)
        if not as_json:
            _print(check)
    failures = sum(check.grade is Grade.FAIL for check in found)
    warnings = sum(check.grade is Grade.WARN for check in found)
    if as_json:
        output.emit_json({"ok": not failures, "checks": [asdict(check) for check in found]})
    else:
        output.say(f"\n{len(found)} checks, {failures} failed, {warnings} with a warning; --json has every figure")
    return Exit.FAILED if failures else Exit.OK


def _print(check: Check) -> None:
    line = output.wrap(f"{check.grade.value}  {check.name:<24} {check.found}", _FOUND_AT)
    output.emit(click.style(check.grade.value, fg=_COLOURS[check.grade]) + line.removeprefix(check.grade.value))
    if check.fix:
        fix = f"{'→' if check.grade is not Grade.PASS else ''} {check.fix}"
        output.emit(output.wrap(f"{'':<{_FOUND_AT}}{fix}", _FOUND_AT))


def _checks(settings: Settings) -> Iterator[Check]:
    from gpuwatch.cli.checks import driver, machine, places

    yield from machine.checks()
    from gpuwatch.clock import MonotonicClock
    from gpuwatch.sources import open_source

    try:
        source = open_source(settings.source, MonotonicClock())
    except SourceError as error:
        yield from driver.checks(settings, None, str(error))
    else:
        with contextlib.closing(source):
            yield from driver.checks(settings, source, "")
    yield from places.checks(settings)
