"""Two kernels' code side by side: resources, occupancy, and instructions by class and loop depth."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from gpuwatch.diff.code_line import CodeLine
from gpuwatch.diff.kernel_code import KernelCode
from gpuwatch.diff.launch_geometry import LaunchCandidate, Occupancy, SmLimits, occupancy

Unit = Literal["count", "bytes", "share"]
Language = Literal["sass", "ptx"]
# Classes that describe a kernel better than address arithmetic does: memory, barriers, thread exchange, tensor cores.
_INFORMATIVE = re.compile(
    r"U?LD[GSL]|ST[GSL]|ATOM|RED|BAR|SHFL|UTMA|[HIQ]G?MMA|(?:ld|st)\.(?!param)|atom|red|bar|cp|shfl|w?g?mma"
)


@dataclass(frozen=True, slots=True)
class ResourceRow:
    """One resource of both kernels; a share is a ratio, and its difference is shown in percentage points."""

    name: str
    unit: Unit
    a: float | None
    b: float | None

    @property
    def differs(self) -> bool:
        return self.a != self.b


@dataclass(frozen=True, slots=True)
class InstructionRow:
    """Each kernel's count of instructions of one class at one loop depth; inside a loop, per iteration."""

    kind: str
    loop_depth: int
    a: int
    b: int

    @property
    def differs(self) -> bool:
        return self.a != self.b


@dataclass(frozen=True, slots=True)
class KernelSide:
    """One kernel with its launch candidates, and the occupancy at the first candidate, None if unknown."""

    code: KernelCode
    launches: tuple[LaunchCandidate, ...]
    occupancy: Occupancy | None


@dataclass(frozen=True, slots=True)
class StaticComparison:
    """The comparison of one pair of kernels."""

    a: KernelSide
    b: KernelSide
    resources: tuple[ResourceRow, ...]
    sass: tuple[InstructionRow, ...]
    ptx: tuple[InstructionRow, ...]

    @property
    def is_same_code(self) -> bool:
        """Return True if both kernels have the same SASS, or the same PTX if a side has no SASS."""
        a, b = (self.a.code.sass, self.b.code.sass) if self.sass else (self.a.code.ptx, self.b.code.ptx)
        return [line.exact for line in a] == [line.exact for line in b]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; the schema is ``docs/schemas/diff.json``."""
        return {
            "a": _side_dict(self.a),
            "b": _side_dict(self.b),
            "same_code": self.is_same_code,
            **{name: msgspec.to_builtins(getattr(self, name)) for name in ("resources", "sass", "ptx")},
        }


def with_occupancy(code: KernelCode, launches: Sequence[LaunchCandidate], limits: SmLimits | None) -> KernelSide:
    """Return a kernel with its occupancy; ``code`` includes the dynamic shared memory of the launches."""
    found = None
    if limits is not None and launches and code.registers_count is not None:
        shared = (code.shared_bytes or 0) + code.dynamic_shared_bytes
        found = occupancy(limits, math.prod(launches[0].block), code.registers_count, shared)
    return KernelSide(code, tuple(launches), found)


def compare_static(a: KernelSide, b: KernelSide) -> StaticComparison:
    """Compare the code of two kernels."""
    sass, ptx = (_instructions(getattr(a.code, name), getattr(b.code, name)) for name in ("sass", "ptx"))
    return StaticComparison(a, b, tuple(_resources(a, b)), sass, ptx)


def _resources(a: KernelSide, b: KernelSide) -> list[ResourceRow]:
    table: list[tuple[str, Unit, list[float | None]]] = [
        ("registers per thread", "count", [each.code.registers_count for each in (a, b)]),
        ("spill stores", "bytes", [each.code.spill_store_bytes for each in (a, b)]),
        ("spill loads", "bytes", [each.code.spill_load_bytes for each in (a, b)]),
        ("stack", "bytes", [each.code.stack_bytes for each in (a, b)]),
        ("static shared memory", "bytes", [each.code.shared_bytes for each in (a, b)]),
        ("dynamic shared memory", "bytes", [each.code.dynamic_shared_bytes for each in (a, b)]),
        ("threads per block", "count", [each.occupancy.block_threads if each.occupancy else None for each in (a, b)]),
        ("theoretical occupancy", "share", [each.occupancy.ratio if each.occupancy else None for each in (a, b)]),
        ("SASS instructions", "count", [len(each.code.sass) or None for each in (a, b)]),
        ("PTX instructions", "count", [len(each.code.ptx) or None for each in (a, b)]),
    ]
    return [ResourceRow(name, unit, *values) for name, unit, values in table]


def _instructions(a: Sequence[CodeLine], b: Sequence[CodeLine]) -> tuple[InstructionRow, ...]:
    """Return a row for each class and depth: deepest loops first, then memory and the like, then large differences."""
    if not (a and b):
        return ()  # only PTX or only a cubin on one side: nothing to compare
    counts = [Counter((each.kind, each.depth) for each in code) for code in (a, b)]
    rows = [InstructionRow(*key, counts[0][key], counts[1][key]) for key in {**counts[0], **counts[1]}]
    return tuple(
        sorted(rows, key=lambda row: (-row.loop_depth, not _INFORMATIVE.match(row.kind), -abs(row.b - row.a), row.kind))
    )


def _side_dict(side: KernelSide) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(replace(side, code=replace(side.code, sass=(), ptx=())))
    del found["code"]["sass"], found["code"]["ptx"], found["code"]["parameter_bytes"]
    return found
