"""gpuwatch daemon: the witness, in the foreground; asked how it is and stopped; as a service, installed and removed."""

from functools import partial

import click

from gpuwatch.cli import failures, options
from gpuwatch.cli.checked_commands import CheckedGroup
from gpuwatch.cli.install import install, uninstall
from gpuwatch.cli.running_daemon import status, stop
from gpuwatch.config.keys import LISTEN_PORT
from gpuwatch.config.settings import SYSTEM_SOCKET, SYSTEM_STATE, Settings


@click.group("daemon", cls=CheckedGroup, short_help="Watch the GPUs, in the foreground.", invoke_without_command=True)
@click.option(
    "--on-demand", is_flag=True, help="Leave after a minute without a client; messages go to daemon.log in the state folder."
)
@click.option(
    "--system", is_flag=True, help=f"Serve every user of this machine, by default at {SYSTEM_SOCKET} from {SYSTEM_STATE}."
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    expose_value=False,
    callback=options.keep_flag,
    help=f"Serve metrics for Prometheus there; a port alone is on loopback, usually {LISTEN_PORT}.",
)
@click.option(
    "--listen-insecure",
    is_flag=True,
    flag_value="yes",
    default=None,
    expose_value=False,
    callback=options.keep_flag,
    help="Serve them beyond this machine without TLS or without asking who reads.",
)
@options.settings_options
@click.pass_context
def command(context: click.Context, on_demand: bool, system: bool) -> None:
    """Watch every GPU, keep what they say, and judge the windows of this user's programs.

    It takes over from a daemon that a window started, once that one's windows have ended.  SIGTERM or `gpuwatch daemon stop`
    ends it cleanly, SIGHUP reads the configuration again.  It never changes a GPU's settings.
    """
    if context.invoked_subcommand is not None:
        return
    if on_demand and system:
        raise click.UsageError("--system stays; --on-demand leaves: choose one")
    from gpuwatch.daemon import process

    # Whoever started it on demand hears what is wrong with a scene from a daemon that runs, as of an absent driver.
    settings = _of_the_system() if system else options.settings(scenes=not on_demand)
    if settings.listen and not on_demand:
        from gpuwatch.exporter.access import address

        address(settings.listen)  # before another daemon is asked to make room
    shared = system or settings.socket == SYSTEM_SOCKET
    process.main(settings, code_of=partial(failures.code_of, as_json=False), on_demand=on_demand, shared=shared)


for each in (status, stop, install, uninstall):
    command.add_command(each)


def _of_the_system() -> Settings:
    """Return the settings in force, with the system's places where none was named."""
    settings = options.settings()
    places = {"state": str(SYSTEM_STATE), "socket": str(SYSTEM_SOCKET)}
    return options.settings({name: place for name, place in places.items() if settings.origin(name) == "default"})
