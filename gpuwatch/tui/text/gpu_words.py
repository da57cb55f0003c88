"""The cells of one GPU's line, each a piece of text with a tone."""

from collections.abc import Sequence

from annotate.evidence import Lane, Visibility
from annotate.output import report
from gpuwatch.tui.text.window_coverage import open_windows_on
from gpuwatch.tui.text.words import NOTHING, Piece, Tone, chips
from gpuwatch.view.live import LiveGpu
from gpuwatch.wire.shown import Shown

STALE_PERIODS = 3
LEAST_STALE_S = 2.0  # a sampler with a smaller delay is late, not silent


def name(gpu: LiveGpu) -> str:
    """Return the board's name without vendor and brand, and with MIG if MIG is on."""
    words = [word for word in report.plain(gpu.device.name).split() if word not in ("NVIDIA", "SIMULATED", "GeForce")]
    mig = gpu.said("mig_mode")
    return (" ".join(words) or NOTHING) + (" MIG" if (gpu.device.mig_mode if mig is None else mig) else "")


def clock(gpu: LiveGpu) -> Piece:
    """Format the SM clock against its maximum; in colour only while a reason limits it."""
    mhz, most = gpu.said("sm_clock_mhz"), gpu.device.sm_clock_max_mhz
    if mhz is None:
        return Piece(NOTHING, Tone.DIM)
    held = any(chip.tone in (Tone.WARN, Tone.BAD) for chip in chips(gpu.said("event_reasons_mask")))
    return Piece(f"{mhz}/{most} {mhz / most:4.0%}" if most else f"{mhz}", Tone.WARN if held else Tone.PLAIN)


def power(gpu: LiveGpu) -> Piece:
    """Format board power against the enforced limit; ``!`` from 98 % of it.  Some logs hold only the mean of a second."""
    now_w = gpu.said("power_w")
    watts, limit = (
        gpu.said("power_average_w") if now_w is None else now_w,
        gpu.said("power_limit_w") or gpu.device.power_limit_w,
    )
    if watts is None:
        return Piece(NOTHING, Tone.DIM)
    at_limit = limit is not None and watts >= 0.98 * limit
    text = f"{watts:.0f}/{limit:.0f}" if limit is not None else f"{watts:.0f}"
    return Piece(text + ("!" if at_limit else " "), Tone.WARN if at_limit else Tone.PLAIN)


def temperature(gpu: LiveGpu) -> Piece:
    """Format the temperature against the slow-down: ``!`` from 5 °C below, ``!!`` from the slow-down on."""
    degrees, most = gpu.said("temperature_c"), gpu.device.temperature_slowdown_c
    if degrees is None:
        return Piece(NOTHING, Tone.DIM)
    if not most:
        return Piece(f"{degrees}  ")
    mark, tone = ("!!", Tone.BAD) if degrees >= most else ("! ", Tone.WARN) if degrees >= most - 5 else ("  ", Tone.PLAIN)
    return Piece(f"{degrees}/{most}{mark}", tone)


def utilisation(gpu: LiveGpu) -> Piece:
    ratio = gpu.said("utilization_ratio")
    return Piece(NOTHING, Tone.DIM) if ratio is None else Piece(f"{ratio:.0%}", Tone.DIM if ratio == 0 else Tone.PLAIN)


def memory(gpu: LiveGpu) -> Piece:
    used, total = gpu.said("memory_used_bytes"), gpu.device.memory_total_bytes
    if used is None:
        return Piece(NOTHING, Tone.DIM)
    return Piece(f"{_gb(used)}/{_gb(total)}" if total else _gb(used))


def _gb(amount: int) -> str:
    return f"{amount / 1e9:.1f}" if amount < 9.95e9 else f"{amount / 1e9:.0f}"


def processes(gpu: LiveGpu, windows: Sequence[Shown]) -> Piece:
    """Count the processes on the GPU; while a window is open on the GPU, own (o) and foreign (F) ones."""
    if gpu.process_list is None:
        return Piece(NOTHING, Tone.DIM)
    pids = {process.pid for process in gpu.process_list.processes}
    seen = "" if gpu.process_list.visibility is not Visibility.NAMESPACE else "≥"
    count = len(pids) + gpu.processes_left_out_count
    opened = open_windows_on(windows, gpu.device.uuid, pids)
    if not opened:
        return Piece(f"{seen}{count}", Tone.DIM if not count else Tone.PLAIN)
    own = len(pids & {pid for each in opened for pid in each.pids})
    foreign = count - own
    return Piece(f"{own}o {seen}{foreign}F", Tone.WARN if foreign else Tone.PLAIN)


def stale_s(gpu: LiveGpu, now_ns: int) -> float | None:
    """Return the age of the last fast-lane row if the row is stale, else None."""
    age_s = gpu.age_s(now_ns)
    if age_s is None or age_s <= max(LEAST_STALE_S, STALE_PERIODS * gpu.period_ns.get(Lane.FAST, 0) / 1e9):
        return None
    return age_s
