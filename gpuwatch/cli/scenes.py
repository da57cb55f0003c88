"""gpuwatch scenes: the simulated GPUs that --source can name."""

import click

from gpuwatch.cli import options, output
from gpuwatch.cli.checked_commands import CheckedCommand


@click.command(
    "scenes",
    cls=CheckedCommand,
    short_help="List the simulated GPUs that --source can name.",
    epilog="Example: gpuwatch scenes",
)
@options.json_option
@options.settings_options
def command(as_json: bool) -> None:
    """List the scenes of simulated GPUs with the correct verdict on each scene's benchmark, and the fleets.

    \b
    gpuwatch run --source simulated:thermal -- python bench.py    judges your program on this simulated GPU
    gpuwatch top --source simulated:fleet                         shows eight simulated GPUs
    """
    from gpuwatch.sources.simulated import FLEETS, SCENES

    if as_json:
        scenes = [
            {"name": each.name, "says": each.says, "status": each.status, "rules": sorted(each.rules)}
            for each in SCENES.values()
        ]
        output.emit_json({"scenes": scenes, "fleets": {name: list(members) for name, members in FLEETS.items()}})
        return
    rows = [(each.name, each.status, each.says) for each in SCENES.values()]
    rows += [(name, "", f"{len(members)} GPUs: {', '.join(members)}") for name, members in FLEETS.items()]
    output.emit(output.wrap_table(rows, header=("SCENE", "VERDICT", "GPU")))
    output.say("\nverdicts are for the scene's own window; a longer or later window can differ")
    output.say("several scenes, one GPU each: --source simulated:NAME,NAME, or GPUWATCH_SOURCE in the environment")
