"""gpuwatch daemon: the daemon in the foreground, with commands for its status, its end and its service."""

from functools import partial

import click

from gpuwatch.cli import failures, options
from gpuwatch.cli.checked_commands import CheckedGroup
from gpuwatch.cli.install import install, uninstall
from gpuwatch.cli.running_daemon import status, stop
from gpuwatch.config.keys import LISTEN_PORT
from gpuwatch.config.settings import SYSTEM_SOCKET, SYSTEM_STATE, Settings


@click.group(
    "daemon",
    cls=CheckedGroup,
    short_help="Watch the GPUs in the foreground.",
    epilog="Example: gpuwatch daemon --listen 9836",
    invoke_without_command=True,
)
@click.option(
    "--on-demand", is_flag=True, help="Exit after a time without clients (setting daemon.idle_exit), and log to daemon.log."
)
@click.option("--system", is_flag=True, help=f"Serve every user. Default: socket {SYSTEM_SOCKET}, store {SYSTEM_STATE}.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    expose_value=False,
    callback=options.keep_flag,
    help=f"Serve Prometheus metrics at this address; a port alone means loopback. Usual port: {LISTEN_PORT}.",
)
@click.option(
    "--listen-insecure",
    is_flag=True,
    flag_value="yes",
    default=None,
    expose_value=False,
    callback=options.keep_flag,
    help="Serve metrics beyond this machine without TLS or without authentication.",
)
@options.settings_options
@click.pass_context
def command(context: click.Context, on_demand: bool, system: bool) -> None:
    """Watch every GPU, store its readings, and judge the windows of this user's programs.

    The daemon replaces one that a window started, once the windows of the old daemon have ended.  SIGTERM or
    `gpuwatch daemon stop` ends the daemon cleanly; SIGHUP reloads the settings.  The daemon never changes a GPU's settings.
    """
    if context.invoked_subcommand is not None:
        return
    if on_demand and system:
        raise click.UsageError("--on-demand: expected no --system with it, found both; a system daemon does not exit when idle")
    from gpuwatch.daemon import process
    from gpuwatch.daemon.on_demand import leave_parent

    # On demand, a wrong scene must not end the daemon: the running daemon reports the error to the window that started it.
    settings = _of_the_system() if system else options.settings(scenes=not on_demand)
    if settings.listen and not on_demand:
        from gpuwatch.exporter.access import address

        address(settings.listen)  # check the address before another daemon is replaced
    shared = system or settings.socket == SYSTEM_SOCKET
    ready = leave_parent() if on_demand else None
    process.main(settings, code_of=partial(failures.code_of, as_json=False), ready=ready, shared=shared)


for each in (status, stop, install, uninstall):
    command.add_command(each)


def _of_the_system() -> Settings:
    settings = options.settings()
    places = {"state": str(SYSTEM_STATE), "socket": str(SYSTEM_SOCKET)}
    return options.settings({name: place for name, place in places.items() if settings.origin(name) == "default"})
