"""gpuwatch demo: three benchmarks and their verdicts, on a real GPU with torch, else on simulated GPUs."""

import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from annotate.verdict import Verdict, worst
from gpuwatch.cli import options, output
from gpuwatch.cli.benchmarks import Benchmark, benchmarks, torch_with_gpu
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.client.start import start
from gpuwatch.client.window import Window, window
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError

SCENES = "demo"  # a fleet with three scenes

_BANNER = """\
┌──────────────────────────────────────────────────────────────────────┐
│  SIMULATED   SIMULATED   SIMULATED   SIMULATED   SIMULATED           │
│  {why:<68}│
│  No such GPUs exist; the rules that judge them are the real ones.    │
└──────────────────────────────────────────────────────────────────────┘"""

_NEXT = """
Commands to try next:
  one window with its evidence     {name} show {label}{options}
  why it matters, what to do       {name} explain {rule}
  the window as a file to attach   {name} report {label} -o {file}{options}
  all windows, live and past       {name} top{options}
  your own benchmark               {name} run -- python bench.py
  what this machine can prove      {name} doctor"""


@click.command(
    "demo",
    cls=CheckedCommand,
    short_help="Measure three benchmarks and show their verdicts.",
    epilog="Example: gpuwatch demo --scenes thermal,neighbour",
)
@click.option(
    "--scenes",
    metavar="A,B,C",
    shell_complete=options.completed_by("scenes"),
    help="Play these simulated scenes, even with a GPU; `gpuwatch scenes` lists them.",
)
@options.json_option
@options.settings_options
def command(scenes: str | None, as_json: bool) -> None:
    """Measure three benchmarks, each in a window, and judge them.

    With a GPU and torch the benchmarks are real.  Otherwise the benchmarks are simulated and marked SIMULATED.
    """
    from gpuwatch.sources.simulated.simulated_source import scenes_named

    settings = options.settings()
    kind, _, argument = settings.source.partition(":")
    if kind == "replay":
        raise UsageError("--source: expected auto, nvml or simulated for the demo, found a recording; try: gpuwatch judge FILE")
    why = "as requested" if scenes is not None or kind == "simulated" else _why_simulated(settings)
    names = scenes or argument or SCENES
    if why is not None:
        scenes_named(names)
        output.say(_BANNER.format(why=why))
        settings = options.settings({"source": f"simulated:{names}"})
    try:
        windows = _measure(benchmarks(torch_with_gpu()), settings) if why is None else _simulated(names, settings)
    except KeyboardInterrupt:
        output.say("stopped early: no verdict")
        raise
    if as_json:
        output.emit_json({"simulated": why is not None, "windows": [each.to_dict() for each in windows]})
        return
    _print(windows, settings)


def _why_simulated(settings: Settings) -> str | None:
    """Return the reason why the demo simulates; None with a GPU and torch.  Raises SourceError: when NVML fails."""
    from gpuwatch.clock import MonotonicClock
    from gpuwatch.sources import has_driver, open_source

    if settings.source == "auto" and not has_driver():
        return "No NVIDIA driver found: `gpuwatch doctor` shows the reason."
    open_source("nvml", MonotonicClock()).close()
    if torch_with_gpu() is None:
        return "No torch with 4 GiB free on a GPU: pip install torch, or free memory"
    return None


def _simulated(names: str, settings: Settings) -> list[Window]:
    from gpuwatch.cli.scene_player import play
    from gpuwatch.sources.simulated.simulated_source import scenes_named

    output.say(f"playing {', '.join(scene.name for scene in scenes_named(names))} in real time, about 10 s …")
    with tempfile.TemporaryDirectory(prefix="gpuwatch-demo-") as folder:
        return [measured for _, measured in play(names, settings, Path(folder))]


def _measure(found: Iterable[Benchmark], settings: Settings) -> list[Window]:
    start(settings)  # now: the GPU would cool while a daemon starts after the warm-up
    windows = []
    for benchmark in found:
        output.say(f"  {benchmark.name}: {benchmark.says} …")
        benchmark.prepare()
        with window(benchmark.name, settings=settings) as measured:
            benchmark.measure(measured)
        windows.append(measured)
    for measured in windows:
        _ = measured.verdicts
    return windows


def _typed() -> str:
    """Return the command to type: the path of the running script ``gpuwatch`` if PATH lacks it (`make demo`), else the name."""
    path = Path(sys.argv[0])
    if shutil.which("gpuwatch") is not None or path.name != "gpuwatch":
        return "gpuwatch"
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _print(windows: Sequence[Window], settings: Settings) -> None:
    verdicts: list[Verdict] = []
    for measured in windows:
        output.emit()
        found = options.repeated(settings)
        more = f"`gpuwatch show -v {shlex.quote(measured.label or '')}{found}` lists them"
        output.emit(output.lay_out(measured.verdicts, sys.stdout, more=more))
        verdicts += measured.verdicts
    shown = worst(verdicts)
    rule = next((finding.rule for finding in shown.hazards), "power-limited")
    label = shlex.quote(shown.label or "")
    output.say(
        _NEXT.format(
            name=_typed(), label=label, rule=rule, file=shlex.quote(f"{shown.label}.html"), options=options.repeated(settings)
        )
    )
