"""`gpuwatch diff` from end to end: sides, compilers, pairs of kernels, comparisons, and times on this machine's GPU."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.cuda.driver import checked
from gpuwatch.diff import kernel_choice
from gpuwatch.diff.compile_side import DEFAULT_ARCH, compile_side
from gpuwatch.diff.compiled import CompileCache, Compiled
from gpuwatch.diff.cubin import read_cubin
from gpuwatch.diff.explained_pair import ExplainedPair
from gpuwatch.diff.kernel_arguments import NotTimedError, check_sizes
from gpuwatch.diff.kernel_code import KernelCode, SideCode, read_kernels, read_side
from gpuwatch.diff.launch_geometry import GivenLaunch, check_launch, derive_launches, sm_limits
from gpuwatch.diff.sides import Side
from gpuwatch.diff.static_comparison import KernelSide, StaticComparison, compare_static, with_occupancy
from gpuwatch.diff.sweep import ShapeSweep, SweepPoint, summarise
from gpuwatch.diff.timed_pair import TimedPair
from gpuwatch.diff.timing_job import TimingTerms, make_job, read_call
from gpuwatch.diff.timing_process import TimingProcess
from gpuwatch.diff.triton_kernels import PlainFunctionError
from gpuwatch.errors import UsageError

Explain = Callable[[TimedPair, TimingProcess, StaticComparison | None], ExplainedPair]
Say = Callable[[str], None]
NO_GPU = "no NVIDIA GPU on this machine"


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """The user's options, without the two sides."""

    fn: str | None
    takes_all: bool
    checks_signatures: bool
    arch: str | None
    flags: tuple[tuple[str, ...], tuple[str, ...]]
    launch: GivenLaunch
    sizes: Mapping[str, int] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    checks_sizes: bool = True  # False with --call
    takes_functions: bool = False  # True on a GPU, which can time Python functions


@dataclass(frozen=True, slots=True)
class Diff:
    """Both compiled sides, and the comparison of each pair of kernels."""

    a: SideCode
    b: SideCode
    arch: str
    comparisons: tuple[StaticComparison, ...]
    why_not_timed: str
    alone: tuple[KernelSide | None, KernelSide | None] = (None, None)  # kernels of the sides if one is a function
    explained: tuple[ExplainedPair, ...] = ()  # the times of each comparison, or of functions, with their reasons
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
            **({"sweep": msgspec.to_builtins(self.sweep)} if self.sweep is not None else {}),
            "kernels": [each.to_dict() for each in self.comparisons],
        }


def run_diff(sides: tuple[Side, Side], request: DiffRequest, state: Path, *, why_not_timed: str) -> Diff:
    """Compile both sides and compare their kernels.

    Raises UsageError: when a side cannot be read or compiled, and for kernels or options that do not fit.
    """
    fn = kernel_choice.with_types(request.fn, request.types)
    wanted = kernel_choice.read_names(fn, (sides[0].kernel, sides[1].kernel))
    arch = _arch(sides, request.arch)
    cache = CompileCache(state)
    codes = []
    for side, name, flags in zip(sides, wanted, request.flags, strict=True):
        codes.append(_read_code(replace(side, kernel=name), arch, flags, cache, request))
    if not all(code.kernels for code in codes):
        return _with_function(sides, codes, wanted, arch, request)
    pairs = kernel_choice.choose_pairs(codes[0], codes[1], wanted, takes_all=request.takes_all)
    kernels = [read_kernels(code, [pair[index] for pair in pairs]) for index, code in enumerate(codes)]
    comparisons = [_compare(kernels[0][a], kernels[1][b], sides, arch, request) for a, b in pairs]
    has_names = not {"triton", "ptx"} & {each.language for each in sides}  # PTX lacks names; Triton's constants are sizes, too
    if request.checks_sizes and has_names:
        check_sizes([code.parameters for each in kernels for code in each.values()], request.sizes)
    return Diff(codes[0], codes[1], arch, tuple(comparisons), why_not_timed)


def _read_code(side: Side, arch: str, flags: tuple[str, ...], cache: CompileCache, request: DiffRequest) -> SideCode:
    try:
        return read_side(compile_side(side, arch, flags, cache, request.sizes, request.types), side)
    except PlainFunctionError:
        if not request.takes_functions:
            raise
        return SideCode(side.shown, Compiled(compiler="Python"), ())


def _with_function(
    sides: tuple[Side, Side], codes: Sequence[SideCode], wanted: tuple[str, str], arch: str, request: DiffRequest
) -> Diff:
    """Return a comparison without code, for a Python function on one side or both."""
    found: list[KernelSide | None] = []
    for side, code, name in zip(sides, codes, wanted, strict=True):
        own = name if side.kernel else ""  # --fn may name the function only
        pair = kernel_choice.choose_pairs(code, code, (own, own), takes_all=False)[0] if code.kernels else None
        found.append(_with_launch(read_kernels(code, pair)[pair[0]], arch, request) if pair else None)
    return Diff(codes[0], codes[1], arch, (), "", (found[0], found[1]))


def _arch(sides: tuple[Side, Side], asked: str | None) -> str:
    """Return the architecture to compile for: the requested one, else that of a cubin, else the default."""
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
    # Triton adds parameters and has other names for types.
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


@dataclass(frozen=True, slots=True)
class TimingRequest:
    """The terms of timing, the text of --call, and the sizes and types of each point of a sweep."""

    terms: TimingTerms
    call: str | None = None
    points: tuple[tuple[Mapping[str, int], Mapping[str, str]], ...] = ()


def find_gpu() -> tuple[str, str]:
    """Return the architecture of the first visible GPU, or an empty text and the reason.  No CUDA context is created."""
    if not Path("/dev/nvidiactl").exists():
        return "", NO_GPU
    try:
        from cuda.bindings import driver

        checked(driver.cuInit(0))
        device = checked(driver.cuDeviceGet(0))
        numbers = driver.CUdevice_attribute
        major, minor = (
            checked(driver.cuDeviceGetAttribute(getattr(numbers, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{name}"), device))
            for name in ("MAJOR", "MINOR")
        )
    except ImportError:
        return "", "launching kernels needs cuda-bindings; run: pip install 'gpuwatch-validity[diff]'"
    except RuntimeError as error:
        return "", f"the driver returned no GPU ({error})"
    return f"sm_{major}{minor}", ""


def time_diff(
    sides: tuple[Side, Side], found: Diff, request: DiffRequest, timing: TimingRequest, state: Path, explain: Explain, say: Say
) -> Diff:
    """Return the comparison with the times of its pairs, and of each further point of a sweep.

    ``say`` receives a line every 10 s while a step lasts.

    Raises UsageError: when a pair cannot be timed, a point of a sweep compiled, or a required counter read.
    """
    try:
        pairs = zip_longest(timed_pairs(sides, found, request, timing, say), found.comparisons)
        explained = tuple(explain(pair, process, static) for (pair, process), static in pairs)
    except NotTimedError as error:
        return replace(found, why_not_timed=str(error))
    found = replace(found, explained=explained)
    if len(timing.points) < 2:
        return found
    points = [SweepPoint(dict(timing.points[0][0]), dict(timing.points[0][1]), explained[0].timed)]
    for sizes, types in timing.points[1:]:
        asked = replace(request, sizes=sizes, types=types)
        again = run_diff(sides, asked, state, why_not_timed="")
        terms = replace(timing, terms=msgspec.structs.replace(timing.terms, sizes=sizes))
        points.append(SweepPoint(dict(sizes), dict(types), next(timed_pairs(sides, again, asked, terms, say))[0]))
    return replace(found, sweep=summarise(points))


def timed_pairs(
    sides: tuple[Side, Side], found: Diff, request: DiffRequest, timing: TimingRequest, say: Say
) -> Iterator[tuple[TimedPair, TimingProcess]]:
    """Yield the times of each pair with the timing process, which ends when the next pair is requested."""
    for pair in [(each.a, each.b) for each in found.comparisons] or (found.alone,):
        job = make_job(sides, pair, (found.a, found.b), request.launch, timing.terms)
        scalars, aliases = read_call(timing.call, job.slots)
        terms = msgspec.structs.replace(job.terms, scalars=scalars, aliases=aliases)
        with TimingProcess(msgspec.structs.replace(job, terms=terms), say) as process:
            yield process.time(), process
