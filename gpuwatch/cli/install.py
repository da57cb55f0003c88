"""gpuwatch daemon install, uninstall: the daemon as a service of systemd; every change is shown and asked for."""

import difflib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from gpuwatch.cli import options, output
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.cli.exit_codes import Exit, Stop
from gpuwatch.config.paths import default_state
from gpuwatch.config.settings import SYSTEM_CONFIG, SYSTEM_STATE, Settings
from gpuwatch.errors import UsageError
from gpuwatch.systemd import units
from gpuwatch.systemd.units import File, InstallPlan

_scope = click.option(
    "--system/--user", "system", default=None, help="For every user of this machine, or for you. Default: as you are."
)
_yes = click.option("--yes", is_flag=True, help="Do not ask.")
_root = click.option(
    "--root", type=click.Path(path_type=Path, file_okay=False), default=Path("/"), metavar="DIR",
    help="Change files below this folder, start and stop nothing: for packages and images.",
)  # fmt: skip


@click.command("install", cls=CheckedCommand, short_help="Make the daemon a service of systemd, or bring it up to date.")
@_scope
@click.option(
    "--with", "with_", metavar="DROP-IN", multiple=True, help="Add to the system's unit; repeatable. --list names them."
)
@click.option("--list", "list_", is_flag=True, help="Say what --with may add.")
@_yes
@_root
@options.settings_options
def install(system: bool | None, with_: tuple[str, ...], list_: bool, yes: bool, root: Path) -> None:
    """Show every file that would be written, as a difference to what is there, and ask.

    Run it again after an upgrade: it shows what changed.  Drop-ins of yours are left alone.
    """
    if list_:
        output.emit(output.table(list(units.drop_ins().items()), header=("DROP-IN", "WHAT FOR")))
        return
    settings, root = options.settings(), root.absolute()
    if _is_system(system, root):
        if given := [name for name in ("source", "state", "socket", "config") if settings.given.get(name)]:
            raise UsageError(f"--{given[0]}: the system's daemon is configured in {SYSTEM_CONFIG}")
        plan = units.system(with_, root=root)
    else:
        if with_:
            raise UsageError("--with: drop-ins are for the system's daemon; use --system")
        if root != Path("/"):
            raise UsageError("--root: it is for the system's daemon; use --system")
        plan = units.user(units.user_units(os.environ), _flags(settings), listen=_listen(settings))
    if not plan.changed:
        output.emit(f"nothing to do: {len(plan.files)} files are as they should be")
        return
    for file in plan.files:
        output.emit(_difference(file))
    _carry_out(plan, root, yes=yes)
    if _is_system(system, root):
        output.say(f"\nwhat it keeps, members of its group may read in {SYSTEM_STATE}: usermod -aG gpuwatch NAME")
    else:
        output.say("\nit lives while you are logged in; for longer: loginctl enable-linger")


@click.command("uninstall", cls=CheckedCommand, short_help="Stop the service and remove its units; what it kept stays.")
@_scope
@_yes
@_root
def uninstall(system: bool | None, yes: bool, root: Path) -> None:
    """Stop the service and remove the files that `install` wrote.  The store, the configuration and the user stay."""
    root = root.absolute()
    for_system = _is_system(system, root)
    if not for_system and root != Path("/"):
        raise UsageError("--root: it is for the system's daemon; use --system")
    folder = units.system_units(root) if for_system else units.user_units(os.environ)
    plan = units.removal(folder, scope="system" if for_system else "user", root=root)
    if not plan.files:
        output.emit(f"nothing to do: no file of ours in {folder}")
        return
    for file in plan.files:
        output.emit(f"remove {file.path}")
    _carry_out(plan, root, yes=yes)
    if for_system:
        output.say(f"\nleft as they are: {SYSTEM_STATE}, {SYSTEM_CONFIG.parent}, user and group gpuwatch (userdel gpuwatch)")


def _is_system(named: bool | None, root: Path) -> bool:
    return named if named is not None else os.getuid() == 0 or root != Path("/")


def _flags(settings: Settings) -> list[str]:
    """Return the options that make the service find what its user finds now: it starts without a shell's variables."""
    named = {name: str(getattr(settings, name)) for name in ("source", "state", "socket") if settings.origin(name) != "default"}
    if settings.origin("state") == "default" and settings.state != default_state(
        settings.source, {"HOME": os.environ.get("HOME", "")}
    ):
        named["state"] = str(settings.state)
    if file := settings.given.get("config") or os.environ.get("GPUWATCH_CONFIG"):
        named["config"] = str(Path(file).absolute())
    return [f"--{name}={value}" for name, value in named.items()]


def _listen(settings: Settings) -> str:
    if settings.origin("socket") == "default":
        return f"%t/gpuwatch/{settings.socket.name}"
    return str(settings.socket).replace("%", "%%")


def _difference(file: File) -> str:
    if file.found == file.text:
        return f"same {file.path}"
    found, wanted = (file.found or "").splitlines(keepends=True), file.text.splitlines(keepends=True)
    lines = difflib.unified_diff(found, wanted, str(file.path) if file.found is not None else "/dev/null", str(file.path))
    return f"{'new' if file.found is None else 'changed'} {file.path}\n" + "".join(lines)


def _carry_out(plan: InstallPlan, root: Path, *, yes: bool) -> None:
    """Ask, then do it.  Raises Stop where it was declined or failed."""
    runs = root == Path("/") and units.MANAGER_RUNS.is_dir()
    for command in (*plan.before, *plan.after) if runs else ():
        output.emit(f"run {' '.join(command)}")
    if not yes:
        if not sys.stdin or not sys.stdin.isatty():
            raise Stop(Exit.FAILED, "nothing was changed; repeat it with --yes", "declined")
        if not click.confirm("Do it?", err=True):
            raise Stop(Exit.FAILED, "nothing was changed", "declined")
    _run(plan.before if runs else ())
    for file in plan.changed:
        try:
            units.write(file, root=root)
        except PermissionError as error:
            raise Stop(Exit.FAILED, f"{file.path}: {error.strerror}; repeat it as root: sudo", "permission") from error
    _run(plan.after if runs else ())
    if not runs and root == Path("/"):
        output.say("systemd does not run here: nothing was started")


def _run(commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        try:
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise Stop(
                Exit.FAILED, f"{command[0]}: {error.strerror}; run it yourself: {' '.join(command)}", "systemd"
            ) from error
        if ended.returncode:
            said = (ended.stderr or ended.stdout).strip() or f"exit code {ended.returncode}"
            raise Stop(Exit.FAILED, f"{' '.join(command)}: {said}", "systemd")
