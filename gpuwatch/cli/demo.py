"""gpuwatch demo: three benchmarks, three verdicts, on a real GPU if there is one and torch, else on simulated ones."""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from annotate.verdict import Verdict, worst
from gpuwatch.cli import options, output
from gpuwatch.cli.benchmarks import benchmarks, torch_with_gpu
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.client.window import Window, window
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError

SCENES = "steady-gemm,from-idle,neighbour"

_BANNER = """\
┌──────────────────────────────────────────────────────────────────────┐
│  SIMULATED   SIMULATED   SIMULATED   SIMULATED   SIMULATED           │
│  {why:<68}│
│  No such GPUs exist; the rules that judge them are the real ones.    │
└──────────────────────────────────────────────────────────────────────┘"""

_NEXT = """
What to type next:
  {explain:<{column}}   why this matters, what it cannot see, what to do
  {top:<{column}}   every GPU and window, live and back in time
  {run:<{column}}   judge a benchmark of yours, on any machine
  {report:<{column}}   its window as one file, to attach
  {doctor:<{column}}   what this machine can prove"""


@click.command("demo", cls=CheckedCommand, short_help="Three benchmarks, three verdicts.")
@click.option("--scenes", metavar="A,B,C", help=f"Simulated scenes to play, even if there is a GPU; by default {SCENES}.")
@options.json_option
@options.settings_options
def command(scenes: str | None, as_json: bool) -> None:
    """Measure three benchmarks, each in a window, and judge them.

    With a GPU and torch they are real; else they are simulated and say so.
    """
    from gpuwatch.sources.simulated.simulated_source import scenes_named

    settings = options.settings()
    kind, _, argument = settings.source.partition(":")
    if kind == "replay":
        raise UsageError(
            "--source: expected auto, nvml or simulated for the demo, found a recording; try: gpuwatch audit --trace FILE"
        )
    why = "as asked for" if scenes is not None or kind == "simulated" else _why_simulated(settings)
    names = scenes or argument or SCENES
    if why is not None:
        scenes_named(names)
        output.say(_BANNER.format(why=why))
    try:
        windows = _real(settings) if why is None else _simulated(names)
    except KeyboardInterrupt:
        output.say("stopped early: no verdict")
        raise
    if as_json:
        output.emit_json({"simulated": why is not None, "windows": [each.to_dict() for each in windows]})
        return
    _print(windows)


def _why_simulated(settings: Settings) -> str | None:
    """Explain why there is nothing real to show; None if there is.  Raises SourceError: when a driver is there and fails."""
    from gpuwatch.clock import MonotonicClock
    from gpuwatch.sources import has_driver, open_source

    if settings.source == "auto" and not has_driver():
        return "No NVIDIA driver found on this machine; `gpuwatch doctor` says more."
    open_source("nvml", MonotonicClock()).close()
    if torch_with_gpu() is None:
        return "A driver, but no torch that finds a free GPU: pip install torch"
    return None


def _simulated(names: str) -> list[Window]:
    from gpuwatch.cli.scenes import play

    output.say(f"playing {names} in real time, some 10 s …")
    with tempfile.TemporaryDirectory(prefix="gpuwatch-demo-") as folder:
        return [measured for _, measured in play(names, Path(folder))]


def _real(settings: Settings) -> list[Window]:
    windows = []
    for benchmark in benchmarks(torch_with_gpu()):
        output.say(f"  {benchmark.name}: {benchmark.says} …")
        benchmark.prepare()
        with window(benchmark.name, settings=settings) as measured:
            benchmark.measure(measured)
        windows.append(measured)
    for measured in windows:
        _ = measured.verdicts
    return windows


def _typed() -> str:
    """Return what a person types to get this command: its name, or its path where it is on no path, as after `make demo`."""
    path = Path(sys.argv[0])
    if shutil.which("gpuwatch") is not None or path.name != "gpuwatch":
        return "gpuwatch"
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _print(windows: Sequence[Window]) -> None:
    verdicts: list[Verdict] = []
    for measured in windows:
        output.emit()
        # `gpuwatch show` could not: simulated windows are not kept.
        output.emit(output.lay_out(measured.verdicts, sys.stdout, more="`gpuwatch demo --json` lists them"))
        verdicts += measured.verdicts
    rule = next((finding.rule for finding in worst(verdicts).hazards), "power-limited")
    name = _typed()
    commands = {
        "explain": f"{name} explain {rule}",
        "top": f"{name} top",
        "run": f"{name} run -- python bench.py",
        "report": f"{name} report -o run.html",
        "doctor": f"{name} doctor",
    }
    output.say(_NEXT.format(**commands, column=max(map(len, commands.values()))))
