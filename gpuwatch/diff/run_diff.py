"""The static half of `gpuwatch diff` from end to end: sides, compilers, pairs of kernels, comparisons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuwatch.diff import kernel_choice
from gpuwatch.diff.compile_cache import CompileCache
from gpuwatch.diff.compile_side import DEFAULT_ARCH, CompileRequest, compile_side
from gpuwatch.diff.compiled import Compiled
from gpuwatch.diff.cubin import read_cubin
from gpuwatch.diff.explained_pair import ExplainedPair
from gpuwatch.diff.kernel_arguments import check_sizes
from gpuwatch.diff.kernel_code import KernelCode, SideCode, read_kernels, read_side
from gpuwatch.diff.launch_geometry import GivenLaunch, check_launch, derive_launches
from gpuwatch.diff.occupancy import sm_limits
from gpuwatch.diff.sides import Side
from gpuwatch.diff.static_comparison import KernelSide, StaticComparison, compare_static, with_occupancy
from gpuwatch.diff.sweep import ShapeSweep
from gpuwatch.diff.timed_pair import TimedPair
from gpuwatch.diff.triton_kernels import PlainFunctionError
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
    checks_sizes: bool = True  # no call names other arguments
    takes_functions: bool = False  # a GPU can time what has no code to compare


@dataclass(frozen=True, slots=True)
class Diff:
    """Both sides as compiled, and the comparison of each pair of kernels."""

    a: SideCode
    b: SideCode
    arch: str
    comparisons: tuple[StaticComparison, ...]
    why_not_timed: str
    alone: tuple[KernelSide | None, KernelSide | None] = (None, None)  # where a side is a Python function: the other's kernel
    timed: tuple[TimedPair, ...] = ()  # one a comparison, or one of a function
    explained: tuple[ExplainedPair, ...] = ()  # the same pairs with their reasons
    sweep: ShapeSweep | None = None

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
            **({"sweep": self.sweep.to_dict()} if self.sweep is not None else {}),
            "kernels": [each.to_dict() for each in self.comparisons],
        }


def run_diff(sides: tuple[Side, Side], request: DiffRequest, state: Path, *, why_not_timed: str) -> Diff:
    """Compile both sides and compare their kernels.  Raises UsageError: with the one reason why that cannot be done."""
    fn = kernel_choice.with_types(request.fn, request.types)
    wanted = kernel_choice.read_names(fn, (sides[0].kernel, sides[1].kernel))
    arch = _arch(sides, request.arch)
    cache = CompileCache(state)
    codes = []
    for side, name, flags in zip(sides, wanted, request.flags, strict=True):
        instances = (name,) if "<" in name and side.language == "cuda" else ()
        asked = CompileRequest(arch, flags, instances, request.sizes, request.types)
        codes.append(_read_code(replace(side, kernel=name), asked, cache, request))
    if not all(code.kernels for code in codes):
        return _with_function(sides, codes, wanted, arch, request)
    pairs = kernel_choice.choose_pairs(codes[0], codes[1], wanted, takes_all=request.takes_all)
    kernels = [read_kernels(code, [pair[index] for pair in pairs]) for index, code in enumerate(codes)]
    comparisons = [_compare(kernels[0][a], kernels[1][b], sides, arch, request) for a, b in pairs]
    if request.checks_sizes and not {"triton", "ptx"} & {
        each.language for each in sides
    }:  # Triton's constants are sizes, too, and PTX has no names
        check_sizes([code.parameters for each in kernels for code in each.values()], request.sizes)
    return Diff(codes[0], codes[1], arch, tuple(comparisons), why_not_timed)


def _read_code(side: Side, asked: CompileRequest, cache: CompileCache, request: DiffRequest) -> SideCode:
    try:
        return read_side(compile_side(side, asked, cache), side)
    except PlainFunctionError:
        if not request.takes_functions:
            raise
        return SideCode(side.shown, Compiled(compiler="Python"), ())


def _with_function(
    sides: tuple[Side, Side], codes: Sequence[SideCode], wanted: tuple[str, str], arch: str, request: DiffRequest
) -> Diff:
    """Return a comparison without code: a Python function on one side or both."""
    found: list[KernelSide | None] = []
    for side, code, name in zip(sides, codes, wanted, strict=True):
        own = name if side.kernel else ""  # --fn may be the function's name alone
        pair = kernel_choice.choose_pairs(code, code, (own, own), takes_all=False)[0] if code.kernels else None
        found.append(_with_launch(read_kernels(code, pair)[pair[0]], arch, request) if pair else None)
    return Diff(codes[0], codes[1], arch, (), "", (found[0], found[1]))


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
