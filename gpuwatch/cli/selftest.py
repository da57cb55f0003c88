"""gpuwatch selftest: this GPU's noise floor, and with --qualify the comparability of this instance."""

from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gpuwatch import clock
from gpuwatch.cli import options, output, qualify, times
from gpuwatch.cli.benchmarks import torch_with_gpu
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.cli.exit_codes import Exit
from gpuwatch.comparing import blocks, floor_record, selftest
from gpuwatch.errors import GpuwatchError
from gpuwatch.measuring import cache, environment, garbage_collection
from gpuwatch.process import torch_state


@click.command(
    "selftest",
    cls=CheckedCommand,
    short_help="Measure and store this GPU's noise floor.",
    epilog="Example: gpuwatch selftest --qualify",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600),
    default=3.0,
    show_default=True,
    help="Measure each trial for this GPU time, in seconds.",
)
@click.option("--show", is_flag=True, help="Print the stored floors; measure nothing.")
@click.option("--qualify", is_flag=True, help="Compare this instance with reference cards of its model (30 s).")
@click.option(
    "--reference",
    metavar="PATH",
    multiple=True,
    help="With --qualify: compare with this file or folder instead of the shipped cards. Repeatable.",
)
@click.option("--save-reference", metavar="FILE", help="With --qualify: add this card to the reference in FILE.")
@options.json_option
@options.settings_options
@options.gathered(qualify.QualifyOptions, "qualifying")
def command(seconds: float, show: bool, as_json: bool, qualifying: qualify.QualifyOptions) -> Exit:
    """Measure this GPU's noise floor: the difference between runs of identical work (GEMM 4096 bf16, copy 1 GiB).

    The work runs on the same and on different buffers.  The floor is the largest of 19 differences; a further difference
    exceeds it with a probability of 1 in 20.  `gpuwatch compare` then reports no smaller difference on this GPU.  The
    measurement takes about six minutes, and needs torch and an otherwise idle GPU.  The state folder stores floors by UUID.

    With --qualify, measure clocks, stamps, launches, copy and GEMM once, and compare this instance with reference cards of the
    model.  Exits 0 if numbers are comparable, 10 if only some are, 11 if none are, 12 if comparability is unknown.
    """
    source = click.get_current_context().get_parameter_source("seconds")
    qualifying.check(is_otherwise=show or source is not ParameterSource.DEFAULT)
    if qualifying.qualify:
        return qualify.run(options.settings(), qualifying, as_json=as_json)
    state = options.settings().state
    kept = floor_record.read(state) if show else _measured(state, seconds)
    if as_json:
        output.emit_json(
            {"gpus": [{"uuid": uuid, "floors": [_fields(floor) for floor in kept[uuid]]} for uuid in sorted(kept)]}
        )
        return Exit.OK
    rows = [
        (
            uuid,
            floor.kind,
            "shared" if floor.shared else "own",
            f"{floor.floor_ratio:.3%}",
            f"{floor.covered_ratio:.0%}",
            str(floor.trials_count),
            times.text(floor.measured_wall_s),
        )
        for uuid in sorted(kept)
        for floor in kept[uuid]
    ]
    if rows:
        output.emit(output.table(rows, header=("GPU", "KERNEL", "BUFFERS", "FLOOR", "COVERS", "TRIALS", "MEASURED")))
    else:
        output.say("no floor is stored yet; measure one on a GPU with: gpuwatch selftest")
    return Exit.OK


def _fields(floor: floor_record.Floor) -> dict[str, Any]:
    return asdict(floor) | {"coverage_ratio": floor.covered_ratio}


def _measured(state: Path, seconds: float) -> dict[str, tuple[floor_record.Floor, ...]]:
    torch: Any = torch_with_gpu()
    if torch is None:
        raise GpuwatchError("selftest: expected torch and a GPU with 4 GiB free, found none; see: gpuwatch doctor")
    torch.cuda.init()
    torch.empty(1, device="cuda")  # allocating memory makes a context, and the context names the GPU
    uuid = str(torch_state.snapshot().facts.get("cuda_uuids") or "").split(",")[0]
    if not uuid:
        raise GpuwatchError("selftest: expected torch 2.4 or newer, which reports the GPU's UUID, found an older one")
    device = environment.current_device()
    flush, _ = cache.make_flush(device.l2_bytes if device else None)
    for kind, shared in product(selftest.KINDS, (False, True)):
        buffers = "the same buffers" if shared else "different buffers"
        output.say(f"{kind}: {selftest.TRIALS_COUNT} trials of {seconds:g} s, identical work on {buffers}")
        pairs = selftest.equal_pairs(torch, kind, shared=shared)
        count, timer = selftest.TRIALS_COUNT, blocks.choose_timer()
        with garbage_collection.held_off():
            found = list(selftest.differences(timer, pairs, trials_count=count, seconds=seconds, warm_s=1.0, before=flush))
        torch.cuda.empty_cache()
        if not found:
            raise GpuwatchError(f"selftest: {kind}: expected times of equal arms, found none above 0; try more --seconds")
        floor_ratio, coverage_ratio = selftest.floor_of(found)
        floor = floor_record.Floor(
            kind=kind,
            shared=shared,
            floor_ratio=floor_ratio,
            trials_count=len(found),
            measured_wall_s=clock.wall_s(),
            coverage_ratio=coverage_ratio,
            cache="cold",
        )
        floor_record.store(state, uuid, floor)
    return {uuid: floor_record.read(state)[uuid]}
