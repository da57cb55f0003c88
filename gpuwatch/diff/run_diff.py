"""The static half of `gpuwatch diff` from end to end: sides, compilers, pairs of kernels, comparisons."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuwatch.diff import kernel_choice
from gpuwatch.diff.compile_cache import CompileCache
from gpuwatch.diff.compile_side import DEFAULT_ARCH, CompileRequest, compile_side
from gpuwatch.diff.cubin import read_cubin
from gpuwatch.diff.explained_pair import ExplainedPair
from gpuwatch.diff.kernel_code import KernelCode, SideCode, read_kernels, read_side
from gpuwatch.diff.launch_geometry import GivenLaunch, check_launch, derive_launches
from gpuwatch.diff.occupancy import sm_limits
from gpuwatch.diff.sides import Side
from gpuwatch.diff.static_comparison import KernelSide, StaticComparison, compare_static, with_occupancy
from gpuwatch.errors import UsageError


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """Everything the user asked for, beside the two sides."""

    fn: str | None
    takes_all: bool
    checks_signatures: bool
    arch: str | None
    flags: tuple[tuple[str, ...], tuple[str, ...]]
    launch: GivenLaunch
    sizes: Mapping[str, int]
    types: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Diff:
    """Both sides as compiled, and the comparison of each pair of kernels."""

    a: SideCode
    b: SideCode
    arch: str
    comparisons: tuple[StaticComparison, ...]
    why_not_timed: str
    explained: tuple[ExplainedPair, ...] = ()  # one a comparison; none where nothing was timed

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; the schema is ``docs/schemas/diff.json``."""
        return {
            "arch": self.arch,
            "sides": [
                {"side": each.shown, "compiler": each.compiled.compiler, "flags": list(each.compiled.flags)}
                for each in (self.a, self.b)
            ],
            "timed": [each.to_dict() for each in self.explained] or None,
            "why_not_timed": None if self.explained else self.why_not_timed,
            "kernels": [each.to_dict() for each in self.comparisons],
        }


def run_diff(sides: tuple[Side, Side], request: DiffRequest, state: Path, *, why_not_timed: str) -> Diff:
    """Compile both sides and compare their kernels.  Raises UsageError: with the one reason why that cannot be done."""
    wanted = kernel_choice.read_names(request.fn, (sides[0].kernel, sides[1].kernel))
    arch = _arch(sides, request.arch)
    cache = CompileCache(state)
    codes = []
    for side, name, flags in zip(sides, wanted, request.flags, strict=True):
        instances = (name,) if "<" in name and side.language == "cuda" else ()
        asked = CompileRequest(arch, flags, instances, request.sizes, request.types)
        codes.append(read_side(compile_side(replace(side, kernel=name), asked, cache), side))
    pairs = kernel_choice.choose_pairs(codes[0], codes[1], wanted, takes_all=request.takes_all)
    kernels = [read_kernels(code, [pair[index] for pair in pairs]) for index, code in enumerate(codes)]
    comparisons = [_compare(kernels[0][a], kernels[1][b], sides, arch, request) for a, b in pairs]
    return Diff(codes[0], codes[1], arch, tuple(comparisons), why_not_timed)


def _arch(sides: tuple[Side, Side], asked: str | None) -> str:
    """Return the architecture to compile for: the asked one, else that of a cubin.

    Raises UsageError: when a cubin is for another one.
    """
    found = asked
    for side in sides:
        if side.language != "cubin":
            continue
        arch, _ = read_cubin(side.path.read_bytes(), side.shown)
        if found is not None and found.rstrip("af") != arch:
            raise UsageError(
                f"{side.shown}: expected a cubin for {found}, found one for {arch}; compile it again, or use --arch {arch}"
            )
        found = found or arch
    return found or DEFAULT_ARCH


def _compare(a: KernelCode, b: KernelCode, sides: tuple[Side, Side], arch: str, request: DiffRequest) -> StaticComparison:
    # Triton adds parameters of its own, and its types have other names.
    if request.checks_signatures and "triton" not in (sides[0].language, sides[1].language):
        kernel_choice.check_signatures(a, b)
    found = [_with_launch(code, arch, request) for code in (a, b)]
    return compare_static(found[0], found[1])


def _with_launch(code: KernelCode, arch: str, request: DiffRequest) -> KernelSide:
    limits = sm_limits(arch)
    if limits is None:
        return with_occupancy(code, (), None)
    check_launch(code, request.launch, limits, arch)
    launches = derive_launches(code, request.launch, limits, request.sizes)
    asked = replace(code, dynamic_shared_bytes=code.dynamic_shared_bytes + request.launch.shared_bytes)
    return with_occupancy(asked, launches, limits)
