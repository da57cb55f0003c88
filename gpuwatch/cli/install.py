"""gpuwatch daemon install, uninstall: the daemon as a systemd service, with each change shown and confirmed."""

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
    "--system/--user",
    "system",
    default=None,
    help="Serve every user, or you alone. Default: --system for root or with --root, else --user.",
)
_yes = click.option("--yes", is_flag=True, help="Apply the changes without asking.")
_root = click.option(
    "--root", type=click.Path(path_type=Path), default=Path("/"), metavar="DIR",
    help="Change only files below this folder, for packages and images; do not start or stop the service.",
)  # fmt: skip


@click.command(
    "install",
    cls=CheckedCommand,
    short_help="Install or update the daemon as a systemd service.",
    epilog="Example: gpuwatch daemon install --system",
)
@_scope
@click.option(
    "--with",
    "with_",
    metavar="DROP-IN",
    multiple=True,
    help="Add this drop-in to the system's unit; --list names them. Repeatable.",
)
@click.option("--list", "list_", is_flag=True, help="List the drop-ins that --with may add.")
@_yes
@_root
@options.settings_options
def install(system: bool | None, with_: tuple[str, ...], list_: bool, yes: bool, root: Path) -> None:
    """Install the daemon as a systemd service: show the difference in each file, ask, and write.

    Run the command again after an upgrade to see and apply the changes.  Your own drop-ins stay unchanged.
    """
    if list_:
        output.emit(output.table(list(units.drop_ins().items()), header=("DROP-IN", "PURPOSE")))
        return
    settings, root = options.settings(), root.absolute()
    if _is_system(system, root):
        if given := [name for name in ("source", "state", "socket", "config") if settings.given.get(name)]:
            raise UsageError(f"--{given[0]}: expected it only with --user, found --system; set it in {SYSTEM_CONFIG}")
        plan = units.system(with_, root=root)
    else:
        if with_:
            raise UsageError("--with: expected --system with it, found the user's daemon")
        if root != Path("/"):
            raise UsageError("--root: expected --system with it, found --user; use --system")
        plan = units.user(units.user_units(os.environ), _flags(settings), listen=_listen(settings))
    if not plan.changed:
        output.emit(f"nothing to do: all {len(plan.files)} files are up to date")
        return
    for file in plan.files:
        output.emit(_difference(file))
    _carry_out(plan, root, yes=yes)
    if _is_system(system, root):
        output.say(f"\nmembers of the group gpuwatch may read the store in {SYSTEM_STATE}: usermod -aG gpuwatch NAME")
    else:
        output.say("\nthe service runs while you are logged in; to keep it running: loginctl enable-linger")


@click.command(
    "uninstall",
    cls=CheckedCommand,
    short_help="Stop the service and remove its units; keep the store.",
    epilog="Example: gpuwatch daemon uninstall --system",
)
@_scope
@_yes
@_root
def uninstall(system: bool | None, yes: bool, root: Path) -> None:
    """Stop the service and remove the files that `install` wrote.  The store, the configuration and the user stay."""
    root = root.absolute()
    for_system = _is_system(system, root)
    if not for_system and root != Path("/"):
        raise UsageError("--root: expected --system with it, found --user; use --system")
    folder = units.system_units(root) if for_system else units.user_units(os.environ)
    plan = units.removal(folder, scope="system" if for_system else "user", root=root)
    if not plan.files:
        output.emit(f"nothing to do: found no file of gpuwatch in {folder}")
        return
    for file in plan.files:
        output.emit(f"remove {file.path}")
    _carry_out(plan, root, yes=yes)
    if for_system:
        output.say(f"\nkept: {SYSTEM_STATE}, {SYSTEM_CONFIG.parent}, user and group gpuwatch (userdel gpuwatch)")


def _is_system(named: bool | None, root: Path) -> bool:
    if root != Path("/"):
        output.check_folder(root, "--root")
    return named if named is not None else os.getuid() == 0 or root != Path("/")


def _flags(settings: Settings) -> list[str]:
    """Return options with this user's settings for the service, which starts without the shell's variables."""
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
    """Ask, then carry out the plan.  Raises Stop: when the user declines or a step fails."""
    runs = root == Path("/") and units.MANAGER_RUNS.is_dir()
    for command in (*plan.before, *plan.after) if runs else ():
        output.emit(f"run {' '.join(command)}")
    if not yes:
        if not sys.stdin or not sys.stdin.isatty():
            raise Stop(
                Exit.FAILED, "expected a terminal to confirm, found none; nothing was changed: repeat with --yes", "declined"
            )
        if not click.confirm("Apply these changes?", err=True):
            raise Stop(Exit.FAILED, "nothing was changed", "declined")
    _run(plan.before if runs else ())
    for file in plan.changed:
        try:
            units.write(file, root=root)
        except PermissionError as error:
            raise Stop(Exit.FAILED, f"{file.path}: {error.strerror}; repeat as root, with sudo", "permission") from error
    _run(plan.after if runs else ())
    if not runs and root == Path("/"):
        output.say("systemd is not running: nothing was started")


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
