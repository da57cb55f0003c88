"""The launch geometry of a kernel: given by the user, else candidates from the kernel's code and sizes."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpuwatch.diff.cubin import Threads
from gpuwatch.diff.kernel_code import KernelCode
from gpuwatch.errors import UsageError
from gpuwatch.utf8 import found_words

WARP = 32
_REGISTERS, _REGISTER_UNIT, _PARTITIONS = 65536, 256, 4  # registers of an SM, their allocation unit per warp, schedulers
_SHARED_UNIT = 128
_MOST_GRID = (2**31 - 1, 65_535, 65_535)  # on every architecture since sm_30
MOST_THREADS = 1024  # in a block, on every architecture
_USUAL_BLOCKS = (256, 128, 512, 1024)
_SQUARE_BLOCKS = ((32, 8, 1), (16, 16, 1), (32, 32, 1))
_ROWS, _COLUMNS = ("rows", "height", "m"), ("cols", "columns", "width", "n")
_SIZES = re.compile(
    r"(?:n|N|size|M|K|m|k|rows|cols|columns|width|height|length|count|numel|n_elements|n_rows|n_cols|stride\w*|ld\w*)$"
)
_ITEM = re.compile(r"(grid|block|smem)=(\d{1,10}(?:[,x]\d{1,10}){0,2})$")


@dataclass(frozen=True, slots=True)
class SmLimits:
    """The resources of one SM; each block also takes ``reserved_bytes`` of the shared memory."""

    warps_count: int
    blocks_count: int
    shared_kib: int
    reserved_bytes: int = 1024


LIMITS = {
    75: SmLimits(32, 16, 64, 0),
    80: SmLimits(64, 32, 164),
    86: SmLimits(48, 16, 100),
    87: SmLimits(48, 16, 164),
    **dict.fromkeys((89, 120, 121), SmLimits(48, 24, 100)),
    **dict.fromkeys((90, 100, 103), SmLimits(64, 32, 228)),
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The occupancy of a kernel at a number of threads per block; ``limited_by`` names the scarcest resource."""

    block_threads: int
    blocks_count: int
    warps_count: int
    ratio: float
    limited_by: str


def write_size(size: Threads) -> str:
    """Return the size of a grid or block as text, such as 32x8x1."""
    return "x".join(map(str, size))


def sm_limits(arch: str) -> SmLimits | None:
    """Return the limits of an architecture such as sm_90 or sm_90a; None for an unknown one."""
    return LIMITS.get(int(re.sub(r"\D", "", arch) or 0))


def occupancy(limits: SmLimits, block_threads: int, registers_count: int, shared_bytes: int) -> Occupancy:
    """Return the occupancy of blocks of ``block_threads`` threads, each with ``shared_bytes`` of shared memory."""
    warps = -(-block_threads // WARP)
    of_warp = -(-registers_count * WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    by_registers = _REGISTERS // _PARTITIONS // of_warp * _PARTITIONS // warps if of_warp else limits.blocks_count
    of_block = -(-(shared_bytes + limits.reserved_bytes) // _SHARED_UNIT) * _SHARED_UNIT
    by_shared = limits.shared_kib * 1024 // of_block if of_block else limits.blocks_count
    found = {
        "warps": limits.warps_count // warps,
        "blocks": limits.blocks_count,
        "registers": by_registers,
        "shared memory": by_shared,
    }
    limited_by = min(found, key=lambda name: found[name])
    held = found[limited_by] * warps
    return Occupancy(block_threads, found[limited_by], held, held / limits.warps_count, limited_by)


def best_block(limits: SmLimits, registers_count: int, shared_bytes: int, most_threads: int) -> int:
    """Return the largest number of threads per block at the best occupancy, like the driver's occupancy search."""
    sizes = range(most_threads // WARP * WARP, 0, -WARP)
    return max(sizes, key=lambda size: (occupancy(limits, size, registers_count, shared_bytes).warps_count, size))


@dataclass(frozen=True, slots=True)
class GivenLaunch:
    """The parts of --launch; grid or block is None if not given."""

    grid: Threads | None = None
    block: Threads | None = None
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LaunchCandidate:
    """One geometry to try, with the reason; the grid is None if the sizes are unknown."""

    block: Threads
    grid: Threads | None
    because: str


def read_launch(text: str | None) -> GivenLaunch:
    """Read a --launch such as 'grid=64 block=32x8 smem=4096'.

    Raises UsageError: for text in another form, for a grid or block size of zero, and for a grid beyond its limits.
    """
    parts: dict[str, Threads] = {}
    for word in (text or "").split():
        found = _ITEM.match(word)
        if found is None or found[1] in parts or (found[1] == "smem" and not found[2].isdigit()):
            raise UsageError(f"--launch: expected 'grid=X[xY[xZ]] block=X[xY[xZ]] smem=BYTES', found {text!r}")
        x, y, z = [*map(int, re.split("[,x]", found[2])), 1, 1][:3]
        parts[found[1]] = (x, y, z)
    if any(0 in parts.get(name, (1,)) for name in ("grid", "block")):
        raise UsageError(f"--launch: expected grid and block sizes of at least 1, found {text!r}")
    if any(size > most for size, most in zip(parts.get("grid", ()), _MOST_GRID, strict=False)):
        raise UsageError(f"--launch: expected a grid of at most {write_size(_MOST_GRID)} blocks, found {found_words(text)}")
    return GivenLaunch(parts.get("grid"), parts.get("block"), parts.get("smem", (0, 1, 1))[0])


def check_launch(kernel: KernelCode, given: GivenLaunch, limits: SmLimits, arch: str) -> None:
    """Check a given launch.

    Raises UsageError: for a block that the kernel excludes, and for too much shared memory.
    """
    most = math.prod(kernel.max_threads) if kernel.max_threads else MOST_THREADS
    if given.block is not None and math.prod(given.block) > most:
        raise UsageError(f"--launch: expected at most {most} threads a block for {kernel.name}, found {math.prod(given.block)}")
    required = kernel.required_block
    if given.block is not None and required is not None and required != given.block:
        raise UsageError(
            f"--launch: expected blocks of {write_size(required)} for {kernel.name}, found {write_size(given.block)}"
        )
    used = (kernel.shared_bytes or 0) + given.shared_bytes
    most_bytes = limits.shared_kib * 1024 - limits.reserved_bytes
    if used > most_bytes:
        raise UsageError(
            f"{kernel.name}: expected at most {most_bytes} bytes of shared memory a block on {arch}, found "
            f"{used} ({kernel.shared_bytes or 0} static, {given.shared_bytes} of --launch)"
        )


def derive_launches(
    kernel: KernelCode, given: GivenLaunch, limits: SmLimits, sizes: Mapping[str, int]
) -> list[LaunchCandidate]:
    """Return geometries to try, the likeliest first."""
    blocks = _blocks(kernel, given, limits)
    return [LaunchCandidate(block, given.grid or _grid(block, sizes), because) for block, because in blocks.items()]


def is_size(name: str) -> bool:
    """Return True for the name of a size, such as n or rows."""
    return _SIZES.fullmatch(name) is not None


def _blocks(kernel: KernelCode, given: GivenLaunch, limits: SmLimits) -> dict[Threads, str]:
    if given.block is not None:
        return {given.block: "--launch"}
    if kernel.required_block is not None:
        return {kernel.required_block: "the only block the kernel takes"}
    most = math.prod(kernel.max_threads) if kernel.max_threads else MOST_THREADS
    if any("SR_TID.Y" in each.text or "%tid.y" in each.text for each in (*kernel.sass, *kernel.ptx)):
        found = [block for block in _SQUARE_BLOCKS if math.prod(block) <= most]
        return dict.fromkeys(found, "the kernel reads threadIdx.y")
    if kernel.max_threads is not None:
        return {kernel.max_threads: "__launch_bounds__"}
    shared = (kernel.shared_bytes or 0) + given.shared_bytes
    registers = kernel.registers_count or 0
    best = best_block(limits, registers, shared, most)
    warps = {size: occupancy(limits, size, registers, shared).warps_count for size in (*_USUAL_BLOCKS, best)}
    sizes = [size for size in _USUAL_BLOCKS if size <= most and warps[size] == warps[best]] or [best]
    return {(size, 1, 1): "the best theoretical occupancy" for size in sizes}


def _grid(block: Threads, sizes: Mapping[str, int]) -> Threads | None:
    """Return the grid that covers a plane, rows times columns, or the first size; None without sizes."""
    if not sizes:
        return None
    lower = {name.lower(): size for name, size in sizes.items()}
    rows = next((lower[name] for name in _ROWS if name in lower), None)
    columns = next((lower[name] for name in _COLUMNS if name in lower), None)
    if block[1] > 1:
        columns = columns or rows or next(iter(sizes.values()))
        return -(-columns // block[0]), -(-(rows or columns) // block[1]), 1
    count = rows * columns if rows and columns else next(iter(sizes.values()))
    return -(-count // block[0]), 1, 1
