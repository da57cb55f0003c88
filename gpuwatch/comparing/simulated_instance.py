"""The probes on a simulated GPU: its scene's board, faults and neighbours, under the probes' work in place of the scene's own."""

from __future__ import annotations

from dataclasses import replace

from annotate.budget import Number
from annotate.evidence import Evidence
from annotate.judge import judge
from annotate.times.clock_sensitivity import Sensitivity, sensitivity
from gpuwatch.comparing.instance_probes import Probed
from gpuwatch.comparing.qualification import Amount
from gpuwatch.sources.simulated import Scene, simulate
from gpuwatch.sources.simulated.kernels import COPY, GEMM, SPIN, Kernel
from gpuwatch.sources.simulated.scenes import FOREVER_S, Phase

_BENCH_S = (4.0, 12.0)


def probe_scene(scene: Scene, seed: int = 0) -> Probed:
    """Run the probes on the scene's GPU without waiting: the same scene and seed give the same numbers."""
    found = Probed(missing={"launch_s": "a simulated GPU launches nothing"})
    numbers = {"light_clock_mhz": SPIN, "copy_s": COPY, "gemm_s": GEMM}
    for name, kernel in numbers.items():
        evidence = _under(scene, kernel, seed)
        verdict = judge(evidence)
        found.uuid = verdict.device_uuid
        found.verdicts.append(verdict)
        amounts = {} if verdict.budget is None else {each.number: Amount.of(each) for each in verdict.budget.numbers}
        fit = None if evidence.timings is None else sensitivity(evidence.timings)
        beta = fit.beta if isinstance(fit, Sensitivity) else None
        at_clock = amounts.get(Number.MEDIAN_AT_CLOCK)
        taken = {name: amounts.get(Number.MEDIAN)}
        if kernel is SPIN:
            taken = {
                name: None
                if at_clock is None or not at_clock.clock_mhz
                else replace(at_clock, value=at_clock.clock_mhz, clock_mhz=None)
            }
        elif kernel is GEMM:
            taken["gemm_at_clock_s"] = None if at_clock is None else replace(at_clock, beta=beta)
        for each, amount in taken.items():
            if amount is None:
                found.missing[each] = verdict.why or "the judge gave no such number"
            else:
                found.amounts[each] = amount
    return found


def _under(scene: Scene, kernel: Kernel, seed: int) -> Evidence:
    work = (Phase(begin_s=0.2, kernel=kernel),)
    return simulate(replace(scene, phases=work, bench=_BENCH_S, length_s=FOREVER_S), seed=seed)[0]
