"""gpuwatch daemon: the witness, in the foreground."""

from __future__ import annotations

import click

from gpuwatch.cli import options


@click.command("daemon", short_help="Watch the GPUs, in the foreground.")
@click.option(
    "--on-demand", is_flag=True, help="Leave after a minute without a client; messages go to daemon.log in the state folder."
)
@options.settings_options
def command(on_demand: bool) -> None:
    """Watch every GPU, keep what they say, and judge the windows of this user's programs.

    SIGTERM ends it cleanly, SIGHUP reads the configuration again.  It never changes a GPU's settings.
    """
    from gpuwatch import daemon

    daemon.main(options.settings(), on_demand=on_demand)
