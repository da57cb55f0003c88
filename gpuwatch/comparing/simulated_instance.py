"""The probes on a simulated GPU: its scene's board, faults and neighbours, with the probes' work instead of the scene's."""

from __future__ import annotations

from dataclasses import replace

from annotate.budget import Number
from annotate.evidence import Evidence
from annotate.judge import judge
from gpuwatch.comparing.instance_probes import Probed
from gpuwatch.comparing.qualification import Amount
from gpuwatch.sources.simulated import Scene, simulate
from gpuwatch.sources.simulated.kernels import COPY, GEMM, SPIN, Kernel
from gpuwatch.sources.simulated.scenes import FOREVER_S, Phase

_BENCH_S = (4.0, 12.0)


def probe_scene(scene: Scene, seed: int = 0) -> Probed:
    """Run the probes on the scene's GPU without waiting: one scene and seed always give the same numbers."""
    found = Probed(missing={"launch_s": "a simulated GPU launches nothing"})
    found.put("light_clock_mhz", _clock(_under(scene, SPIN, seed)), "no work ran")
    copied, multiplied = (_under(scene, kernel, seed) for kernel in (COPY, GEMM))
    found.verdicts += [judge(copied), judge(multiplied)]
    found.uuid = found.verdicts[0].device_uuid
    found.put("copy_s", Amount.of(found.verdicts[0], Number.MEDIAN), "the verdict has no such number")
    found.put_gemm(found.verdicts[1], multiplied.timings)
    return found


def _clock(evidence: Evidence) -> Amount | None:
    return None if evidence.timings is None else Amount.of_series(evidence.timings.sm_clock_mhz)


def _under(scene: Scene, kernel: Kernel, seed: int) -> Evidence:
    work = (Phase(begin_s=0.2, kernel=kernel),)
    name = f"{scene.name}: {kernel.name}"
    return simulate(replace(scene, name=name, phases=work, bench=_BENCH_S, length_s=FOREVER_S), seed=seed)[0]
