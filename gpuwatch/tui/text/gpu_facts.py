"""The facts of one GPU as text: its name, limits, values, and processes."""

from collections.abc import Sequence

from annotate.evidence import Ownership, Process, Visibility
from annotate.output import report
from gpuwatch.tui.text import gpu_words, words
from gpuwatch.tui.text.window_coverage import open_windows_on, owned_processes
from gpuwatch.tui.text.words import NOTHING, Piece, Tone, clip_pieces
from gpuwatch.view.live import Live, LiveGpu
from gpuwatch.wire.shown import Shown

_MODES = {"ecc_mode": "ECC", "mig_mode": "MIG", "persistence_mode": "persistence"}
_WHOSE = {
    Ownership.OWN: Piece("own    ", Tone.GOOD),
    Ownership.FOREIGN: Piece("FOREIGN", Tone.WARN),
    Ownership.UNKNOWN: Piece("unknown", Tone.DIM),
}


def head(uuid: str, gpu: LiveGpu | None, live: Live, width: int) -> list[Piece]:
    """Format the GPU's number, name and UUID, and any loss or staleness."""
    everyone = [each.device.uuid for each in live.gpus]
    of = f" of 0–{len(everyone) - 1}" if len(everyone) > 1 else ""
    pieces = [Piece(f" GPU {everyone.index(uuid)}{of}" if uuid in everyone else " GPU")]
    if gpu is not None:
        pieces.append(Piece(f"  {gpu_words.name(gpu)}"))
    pieces += [*_wrong(gpu, live), Piece(f"  {report.plain(uuid)}", Tone.DIM)]
    return clip_pieces(pieces, width)


def _wrong(gpu: LiveGpu | None, live: Live) -> list[Piece]:
    if gpu is None:
        return [Piece("  × no such GPU at this time", Tone.BAD)]
    if gpu.lost is not None:
        return [Piece(f"  × LOST  {report.plain(gpu.lost)}", Tone.BAD)]
    stale_s = gpu_words.stale_s(gpu, live.at_ns)
    return [Piece(f"  ! STALE {stale_s:.0f} s", Tone.BAD)] if stale_s is not None else []


def limits(gpu: LiveGpu, width: int) -> list[Piece]:
    """List the limits and settings, the most important first, without unobserved ones."""
    device, said = gpu.device, gpu.said
    modes = {name: said(name) if said(name) is not None else getattr(device, name) for name in _MODES}
    limit_w, default_w = said("power_limit_w") or device.power_limit_w, device.power_limit_default_w
    generation, lanes = said("pcie_generation_count"), said("pcie_width_count")
    facts = [
        _fact("max {} MHz", device.sm_clock_max_mhz),
        _fact("locked {} MHz", said("sm_clock_lock_mhz")),
        _fact("limit {:.0f} W", limit_w) + _fact(" (default {:.0f})", default_w if limit_w not in (None, default_w) else None),
        _fact("slow-down {} °C", device.temperature_slowdown_c),
        *(f"{shown} {'on' if modes[name] else 'off'}" for name, shown in _MODES.items() if modes[name] is not None),
        f"PCIe {generation} x{lanes}" if generation is not None and lanes is not None else "",
        report.plain(device.pci_bus_id or ""),
        _fact("driver {}", report.plain(device.driver_version) if device.driver_version else None),
    ]
    return clip_pieces(
        [Piece(f"{'  ' if index else ' '}{each}", Tone.DIM) for index, each in enumerate(filter(None, facts))], width
    )


def _fact(text: str, value: float | str | None) -> str:
    return "" if value is None else text.format(value)


def now(gpu: LiveGpu, live: Live, width: int) -> list[Piece]:
    """Format the GPU's values as in the table of all GPUs, with units, and name the clock event reasons."""
    held, (mhz, _, share) = gpu_words.clock(gpu), gpu_words.clock(gpu).text.partition(" ")
    pieces = [
        Piece(f" {mhz} MHz{f' {share.strip()}' if share else ''}", held.tone),
        _with(gpu_words.power(gpu), " W"),
        _with(gpu_words.temperature(gpu), " °C"),
        _with(gpu_words.utilisation(gpu), " util"),
        Piece("  "),
    ]
    room = width - sum(len(piece.text) for piece in pieces)
    pieces += words.reasons(gpu.said("event_reasons_mask"), max(room, 3))
    crowd = gpu_words.processes(gpu, live.windows)
    pieces += [
        _with(gpu_words.memory(gpu), " GB"),
        _with(crowd, " process" if crowd.text == "1" else " processes"),
        Piece(_fact("  memory {} MHz", gpu.said("mem_clock_mhz")), Tone.DIM),
        Piece(_fact("  1 s mean {:.0f} W", gpu.said("power_average_w")), Tone.DIM),
    ]
    return clip_pieces(pieces, width)


def _with(piece: Piece, unit: str) -> Piece:
    text = piece.text.rstrip()
    bare = text.rstrip("!")
    return Piece(f"  {bare}{unit}{text[len(bare) :]}", piece.tone)


def process_lines(gpu: LiveGpu, live: Live, width: int, most: int) -> list[list[Piece]]:
    """List the GPU's processes, foreign ones first, then by memory, and the number left out."""
    process_list = gpu.process_list
    if process_list is None:
        return [[Piece(f" {NOTHING} processes were not observed", Tone.DIM)]]
    partial = process_list.visibility is Visibility.NAMESPACE
    if not process_list.processes:
        return [[Piece(" no process on this GPU" + (" visible to this container" if partial else ""), Tone.DIM)]]
    seen = owned_processes(gpu, live.windows)
    seen.sort(key=lambda each: (each[1] is not Ownership.FOREIGN, -(each[0].memory_bytes or 0), each[0].pid))
    count = len(seen) + gpu.processes_left_out_count
    fit = most if count <= most and not partial else max(most - 1, 1)
    opened = open_windows_on(live.windows, gpu.device.uuid, {process.pid for process, _ in seen})
    lines = [_process(process, owner, _role(process, owner, opened), width) for process, owner in seen[:fit]]
    rest = [f"and {count - fit} more"] if count > fit else []
    rest += ["a container's view: other processes may be on this GPU"] if partial else []
    return [*lines, [Piece(words.cut(f" {', '.join(rest)}", width), Tone.DIM)]] if rest and most > 1 else lines


def _role(process: Process, owner: Ownership, opened: Sequence[Shown]) -> str:
    """Name the window of a process, or the window that it disturbs."""
    mine = [each for each in opened if process.pid in each.pids] if owner is Ownership.OWN else list(opened)
    if not mine or owner is Ownership.UNKNOWN:
        return ""
    verb = "works for" if owner is Ownership.OWN else "disturbs"
    return f", {verb} {report.plain(mine[0].label or mine[0].run)}"


def _process(process: Process, owner: Ownership, role: str, width: int) -> list[Piece]:
    memory = f"{process.memory_bytes / 1e9:.1f} GB" if process.memory_bytes is not None else NOTHING
    used = f"{process.utilization_ratio:.0%}" if process.utilization_ratio is not None else NOTHING
    who = report.plain(process.user or NOTHING)
    start = [Piece(" "), _WHOSE[owner], Piece(f" {process.pid:>8}  {words.cut(who, 12):<12} {memory:>9} {used:>5}  ")]
    room = max(width - sum(len(piece.text) for piece in start), 0)
    return [
        *start,
        Piece(words.cut(report.plain(process.name or NOTHING) + (" (graphics)" if process.graphics else "") + role, room)),
    ]
