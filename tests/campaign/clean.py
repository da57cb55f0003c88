"""Windows without hazards: simulated windows by seed, and stretches of windows recorded on a real GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

from annotate.capsule.pack import unpack
from annotate.evidence import Evidence, Fact
from gpuwatch.sources import recordings
from gpuwatch.sources.simulated import simulate
from gpuwatch.sources.simulated.kernels import ATTENTION, CONVOLUTION, COPY, FLOAT_GEMM, GEMM, LARGE_GEMM, VECTOR_ADD
from gpuwatch.sources.simulated.scenes import Fault, Mishap, Phase, Scene

_TRACES = Path(__file__).parents[1] / "traces"
KERNELS = (COPY, GEMM, LARGE_GEMM, CONVOLUTION, ATTENTION, FLOAT_GEMM, VECTOR_ADD)
LENGTH_S = (3.2, 8.0)  # a capped clock needs 3 s to settle, so the judge correctly flags shorter capped windows
_WARM_S = (3.3, 6.0)
_BASELINE_SEED = 1_000_000

# Operations (None if the kernel's name does not give their number) and bytes of a call.
_WORK: Mapping[str, tuple[float | None, float]] = {
    GEMM.name: (2.0 * 4096**3, 3.0 * 2 * 4096**2),
    LARGE_GEMM.name: (2.0 * 16384**3, 3.0 * 2 * 16384**2),
    FLOAT_GEMM.name: (2.0 * 4096**3, 3.0 * 4 * 4096**2),
    COPY.name: (None, 2.0 * 2**30),
    VECTOR_ADD.name: (None, 5.0e8),
    CONVOLUTION.name: (None, 5.0e8),
    ATTENTION.name: (None, 5.0e8),
}

# Recorded windows without a hazard, and the start of the clean part, in seconds: the first run of GEMMs followed a pause.
_RECORDED = {"clean_gemm4k": 2.7, "power_cap_gemm16k": 3.0, "clean_copy1g": 0.0}
_WITNESSED = ("clean-copy-1g", "steady-gemm-4096", "steady-gemm-16384", "steady-gemm-4096-fp32", "zeros-gemm-16384")


def simulated(seed: int) -> Evidence:
    """Return one clean window; the seed gives kernel, unrest, length, warm-up and air temperature.  The kernel is the label.

    The windows of odd seeds have a baseline: another run of the same work.
    """
    rng = Random(f"campaign/{seed}")
    kernel = rng.choice(KERNELS)
    kernel = replace(kernel, unrest_ratio=kernel.unrest_ratio * rng.uniform(0.5, 1.5))
    begin_s = 0.2 + rng.uniform(*_WARM_S)
    # Whole milliseconds are exact enough, because the simulation's 100 Hz reads start at the window's start.
    bench = (round(begin_s, 3), round(begin_s + rng.uniform(*LENGTH_S), 3))
    scene = Scene(
        name=kernel.name,
        says="a clean window of the campaign",
        phases=(Phase(begin_s=0.2, kernel=kernel),),
        mishaps=(Mishap(fault=Fault.HOT_AIR, begin_s=0.0, value=rng.uniform(-6.0, 8.0)),),
        bench=bench,
    )
    found = _with_declared(simulate(scene, seed=seed)[0], kernel.name)
    if seed % 2:
        other = replace(scene, bench=(bench[0] + 0.25, bench[1] + 0.25))
        found = replace(found, baseline=_with_declared(simulate(other, seed=seed + _BASELINE_SEED)[0], kernel.name))
    return found


def _with_declared(evidence: Evidence, kernel: str) -> Evidence:
    """Add a careful harness's declarations, and facts of host and GPU, so that rules can decide and find nothing."""
    timings = evidence.timings
    assert evidence.device is not None
    assert timings is not None
    flops, moved_bytes = _WORK.get(kernel, (None, 4 << 30))
    declared: dict[str, Fact] = {
        "torch_version": "2.9.1",
        "cuda_version": "13.0",
        "cudnn_version": "91200",
        "matmul_precision": "highest",
        "cudnn_tf32": True,
        "cudnn_benchmark": False,
        "deterministic": False,
        "environment": "",
        "cuda_uuids": evidence.device.uuid,
        "sm_count": 132,
        "l2_bytes": 60 << 20,
        "launch_blocking": False,
        "profiler_used": False,
        "tampered": "",
        "alloc_count": 0,
        "alloc_retry_count": 0,
        "reserved_change_bytes": 0,
        "timer": "events",
        "timer_overhead_s": 2e-7,
        "sync_s": 0.002,
        "busy_ratio": float(timings.took_s.sum()) / evidence.window.length_s,
        "warmup_count": 1000,
        "dtype": "float32" if "fp32" in kernel or "vector" in kernel else "bfloat16",
        "call_flops_count": flops,
        "call_bytes": moved_bytes,
        "working_set_bytes": moved_bytes,
        "input_zero_ratio": 0.0,
        "input_unique_ratio": 0.038,
        "input_dtype": "bfloat16",
        "input_bytes": 256 << 20,
        "reference_error_ratio": 1e-4,
        "reference_limit_ratio": 1e-2,
        "output_unchanged": False,
        "aa_floor_ratio": 0.004,
        "canary_clock_mhz": 1980.0,
        "canary_copy_bytes_count": 4.2e12,
        "canary_record_clock_mhz": 1980.0,
        "canary_record_copy_bytes_count": 4.2e12,
        "canary_record_count": 7,
    }
    host = replace(
        evidence.host,
        boot_id="boot",
        hostname="host",
        numa_nodes="0",
        wall_step_s=0.0,
        profilers="idle:libcupti.so.13",
        sharing="",
        threads_born_count=2,
        processes_born_count=0,
        born_cpu_s=0.001,
        watcher_cpu_s=0.04 * evidence.window.length_s,
    )
    # ``sampler-perturbs`` needs a GPU that is not simulated, so the device gets a real GPU's facts.
    device = replace(
        evidence.device,
        simulated=False,
        name="NVIDIA H200",
        numa_node_count=0,
        cuda_cores_count=16_896,
        memory_bus_bits_count=6144,
    )
    return replace(evidence, declared=declared, host=host, device=device)


def recorded(*, step_s: float = 0.25) -> Iterator[tuple[str, Evidence]]:
    """Yield overlapping stretches of each clean window that was recorded on an H200, with the window's label."""
    # The log marks batches of ten launches, not the start of each call: nine of ten times would overlap the previous one.
    logs = recordings.load(_TRACES / "scenarios.npz")
    pieces = [replace(each, timings=None) for each in logs if each.window.label in _RECORDED]
    kept = unpack((_TRACES / "h200-windows.capsule").read_bytes())
    pieces += [each for each in kept if each.window.label in _WITNESSED]
    for piece in pieces:
        for length_s in (3.2, 4.0, 5.0):
            late_s = _RECORDED.get(str(piece.window.label), 0.0)
            begin_ns = piece.window.begin_ns + round(late_s * 1e9)
            end_ns = min(piece.window.end_ns, _last_power_ns(piece))
            while begin_ns + length_s * 1e9 <= end_ns:
                yield str(piece.window.label), _part(piece, begin_ns, begin_ns + round(length_s * 1e9))
                begin_ns += round(step_s * 1e9)


def _last_power_ns(piece: Evidence) -> int:
    """Return the end of the driver's power record, which was not read after the window; the window's end without a record."""
    dense = piece.trace.dense_power
    return int(dense.at_ns[-1]) if len(dense.at_ns) else piece.window.end_ns


def _part(piece: Evidence, begin_ns: int, end_ns: int) -> Evidence:
    """Cut a window to a part, without the times outside the part."""
    part, timings = piece.part(begin_ns, end_ns), piece.timings
    if timings is None:
        return part
    kept = (timings.at_ns >= begin_ns) & (timings.at_ns < end_ns)
    clock = None if timings.sm_clock_mhz is None else timings.sm_clock_mhz[kept]
    return replace(part, timings=replace(timings, at_ns=timings.at_ns[kept], took_s=timings.took_s[kept], sm_clock_mhz=clock))
