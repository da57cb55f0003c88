"""gpuwatch daemon status and stop: commands for the running daemon."""

from typing import Any

import click

from gpuwatch import clock
from gpuwatch.cli import options, output, times
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.cli.exit_codes import Exit, Stop
from gpuwatch.client.connection import Client, connect_running
from gpuwatch.config import quantities
from gpuwatch.config.quantities import QuantityError
from gpuwatch.daemon import handover
from gpuwatch.errors import DaemonError, UsageError

_STARTED_BY = {
    "window": "a window, on demand; exits when idle",
    "person": "a person, with gpuwatch daemon",
    "service": "a service manager",
}


@click.command(
    "status", cls=CheckedCommand, short_help="Describe the running daemon.", epilog="Example: gpuwatch daemon status --json"
)
@options.json_option
@options.settings_options
def status(as_json: bool) -> Exit:
    """Print the daemon's pid, socket, store, start, clients, windows and the address of its metrics.

    Exits 0 if a daemon answers, else 1.
    """
    settings = options.settings(scenes=False)
    client = connect_running(settings)
    if client is None:
        data = {"running": False, "socket": str(settings.socket), "state": str(settings.state)}
        text = f"no daemon runs at {settings.socket}; the first window starts one, or run: gpuwatch daemon"
        output.emit_either(data, text, as_json=as_json)
        return Exit.FAILED
    with client:
        facts = _facts(client)
    output.emit_either(facts, _text(facts), as_json=as_json)
    return Exit.OK


@click.command(
    "stop", cls=CheckedCommand, short_help="Stop the running daemon.", epilog="Example: gpuwatch daemon stop --wait 5min"
)
@click.option(
    "--wait", metavar="DURATION", default="30s", show_default=True, help="Wait for open windows for at most this time."
)
@click.option("--now", is_flag=True, help="Do not wait; open windows end unproven.")
@options.json_option
@options.settings_options
def stop(wait: str, now: bool, as_json: bool) -> None:
    """Stop the daemon once the windows are judged and stored.

    Exits 0 if the daemon ended or none ran, 1 if windows stayed open or a service manager would restart the daemon.
    """
    wait_s, settings = _wait_s(wait), options.settings(scenes=False)
    client = connect_running(settings)
    if client is None:
        text = f"no daemon runs at {settings.socket}: nothing to stop"
        output.emit_either({"stopped": False, "pid": None, "socket": None}, text, as_json=as_json)
        return
    with client:
        facts = _facts(client)
        if facts["started_by"] == "service":
            fix = "systemctl stop gpuwatch.socket gpuwatch.service (for a user's service: systemctl --user stop ...)"
            found = f"expected a daemon without a service manager, found pid {facts['pid']} under one, which would restart it"
            raise Stop(Exit.FAILED, f"{found}; run: {fix}", "service")
        try:
            handover.ask_to_leave(client, wait_s=wait_s, now=now, tell=output.say)
            handover.wait_until_gone(client)
        except DaemonError as error:
            if error.code != "windows-open":
                raise
            fix = "wait longer with --wait, or end the windows as unproven with --now"
            raise Stop(Exit.FAILED, f"the daemon of pid {facts['pid']} was not stopped: {error}; {fix}", error.code) from error
    text = f"stopped the daemon of pid {facts['pid']} at {facts['socket']}"
    output.emit_either({"stopped": True, "pid": facts["pid"], "socket": facts["socket"]}, text, as_json=as_json)


def _facts(client: Client) -> dict[str, Any]:
    found = client.status()
    uptime_s = float(found.get("uptime_s") or 0.0)
    named = ("version", "pid", "source", "simulated", "socket", "state", "windows_count", "metrics")
    return {
        "running": True,
        **{name: found.get(name) for name in named},
        "started_by": handover.started_by(found),
        "uptime_s": uptime_s,
        "begun_wall_s": clock.wall_s() - uptime_s,
        "clients_count": max(0, int(found.get("clients_count") or 0) - 1),  # without this command
    }


def _text(facts: dict[str, Any]) -> str:
    rows = {
        "daemon": f"pid {facts['pid']}, gpuwatch {facts['version']}, watches {facts['source']}",
        "socket": facts["socket"],
        "store": facts["state"],
        "started": f"{times.text(facts['begun_wall_s'])} by {_STARTED_BY.get(facts['started_by'], facts['started_by'])}",
        "clients": facts["clients_count"],
        "windows": f"{facts['windows_count']} open or being judged",
        "metrics": facts["metrics"] or "not served; to serve metrics: gpuwatch daemon --listen PORT",
    }
    return "\n".join(f"{name:<8} {value}" for name, value in rows.items())


def _wait_s(text: str) -> float:
    try:
        return quantities.duration_ns(text) / 1e9
    except QuantityError as error:
        raise UsageError(f"--wait: {error}") from error
