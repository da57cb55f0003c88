"""Theoretical occupancy: the warps that an SM can hold at once, and what limits them; after NVIDIA's cuda_occupancy.h."""

from dataclasses import dataclass

WARP = 32
_REGISTERS, _REGISTER_UNIT, _PARTITIONS = 65536, 256, 4  # of an SM, a warp's allocation unit, schedulers
_SHARED_UNIT = 128


@dataclass(frozen=True, slots=True)
class SmLimits:
    """The resources of one SM: shared memory in KiB, of which each block also takes ``reserved_bytes``."""

    warps_count: int
    blocks_count: int
    shared_kib: int
    reserved_bytes: int = 1024

    @property
    def block_shared_bytes(self) -> int:
        """Return the most shared memory that one block may ask for."""
        return self.shared_kib * 1024 - self.reserved_bytes


LIMITS = {
    75: SmLimits(32, 16, 64, 0),
    80: SmLimits(64, 32, 164),
    86: SmLimits(48, 16, 100),
    87: SmLimits(48, 16, 164),
    89: SmLimits(48, 24, 100),
    90: SmLimits(64, 32, 228),
    100: SmLimits(64, 32, 228),
    103: SmLimits(64, 32, 228),
    120: SmLimits(48, 24, 100),
    121: SmLimits(48, 24, 100),
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The occupancy of a kernel at a number of threads a block; ``limited_by`` names the scarcest resource."""

    block_threads: int
    blocks_count: int
    warps_count: int
    ratio: float
    limited_by: str


def sm_limits(arch: str) -> SmLimits | None:
    """Return the limits of an architecture such as sm_90 or sm_90a; None for an unknown one."""
    digits = "".join(letter for letter in arch if letter.isdecimal())
    return LIMITS.get(int(digits)) if digits else None


def occupancy(limits: SmLimits, block_threads: int, registers_count: int, shared_bytes: int) -> Occupancy:
    """Return the occupancy of blocks of ``block_threads`` threads, each block with ``shared_bytes`` in all."""
    warps = -(-block_threads // WARP)
    of_warp = -(-registers_count * WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    by_registers = limits.blocks_count
    if of_warp:
        by_registers = _REGISTERS // _PARTITIONS // of_warp * _PARTITIONS // warps
        if of_warp * -(-warps // _PARTITIONS) * _PARTITIONS > _REGISTERS:
            by_registers = 0
    of_block = -(-(shared_bytes + limits.reserved_bytes) // _SHARED_UNIT) * _SHARED_UNIT
    by_shared = limits.shared_kib * 1024 // of_block if of_block else limits.blocks_count
    found = {
        "warps": limits.warps_count // warps,
        "blocks": limits.blocks_count,
        "registers": by_registers,
        "shared memory": by_shared,
    }
    blocks = min(found.values())
    limited_by = next(name for name, count in found.items() if count == blocks)
    held = blocks * warps
    return Occupancy(block_threads, blocks, held, held / limits.warps_count, limited_by)


def best_block(limits: SmLimits, registers_count: int, shared_bytes: int, most_threads: int) -> int:
    """Return the largest number of threads a block that reaches the best occupancy, as the driver's own search does."""
    sizes = range(most_threads // WARP * WARP, 0, -WARP)
    return max(sizes, key=lambda size: (occupancy(limits, size, registers_count, shared_bytes).warps_count, size))
