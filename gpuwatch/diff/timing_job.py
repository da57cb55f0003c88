"""The job of the timing process: code and arguments of both sides, and the terms of checking and timing."""

from collections.abc import Mapping

import msgspec

from gpuwatch.diff.cubin import Threads
from gpuwatch.diff.kernel_arguments import NotTimedError, Slot, join_slots, read_slots
from gpuwatch.diff.kernel_code import SideCode
from gpuwatch.diff.launch_geometry import GivenLaunch, read_launch
from gpuwatch.diff.sides import Side
from gpuwatch.diff.static_comparison import KernelSide
from gpuwatch.errors import UsageError

_FIXED_BLOCKS = ((32, 1, 1), (64, 1, 1), (128, 1, 1), (256, 1, 1), (512, 1, 1), (1024, 1, 1))
_GRID_SIZE_WORDS = ("%nctaid", "c[0x0][0xc]")  # gridDim.x in PTX and in SASS


class KernelJob(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A kernel of a cubin: ``blocks`` are tried in order, ``padding_bytes`` are sizes of further zero arguments."""

    name: str
    symbol: str
    cubin: bytes
    blocks: tuple[Threads, ...]
    grid: Threads | None
    shared_bytes: int
    strides: bool
    resident_blocks_count: int  # on one SM
    padding_bytes: tuple[int, ...] = ()
    fixed_blocks: tuple[Threads, ...] = ()  # tried first if the kernel does not read its block size


class CallJob(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A function of a Python file."""

    name: str
    file: str
    function: str


class TimingTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The user's terms of checking and timing."""

    sizes: Mapping[str, int] = {}
    scalars: Mapping[str, float] = {}
    aliases: Mapping[str, str] = {}
    fill: str = "randn"
    seed: int = 0
    inputs: str = ""  # FILE.py:FUNCTION
    outs: tuple[str, ...] = ()
    rtol: float | None = None
    checks: bool = True
    cache: str = "cold"
    seconds: float = 3.0
    tolerance: float = 0.005
    has_own_clock: bool = False
    is_pipeline: bool = False  # capture the launches of Python functions into a graph
    settings: Mapping[str, str] = {}


class TimingJob(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the timing process needs."""

    a: KernelJob | CallJob
    b: KernelJob | CallJob
    slots: tuple[Slot, ...]
    is_plane: bool
    terms: TimingTerms


def make_job(
    sides: tuple[Side, Side],
    kernels: tuple[KernelSide | None, KernelSide | None],
    codes: tuple[SideCode, SideCode],
    launch: GivenLaunch,
    terms: TimingTerms,
) -> TimingJob:
    """Return the job for one pair; a side without a kernel is a function of a Python file.

    Raises UsageError: for differing or unsupported arguments, an unknown name in --shape, and a side without a cubin.
    """
    jobs: list[KernelJob | CallJob] = []
    slots: list[tuple[Slot, ...]] = []
    for side, kernel, code in zip(sides, kernels, codes, strict=True):
        if kernel is None:
            jobs.append(CallJob(name=side.kernel, file=str(side.path), function=side.kernel))
            continue
        # Triton adds nameless parameters, pointers to unused scratch memory.
        own = [each for each in kernel.code.parameters if each.name or not code.compiled.parameters]
        padding = tuple(each.bytes_count or 8 for each in kernel.code.parameters[len(own) :])
        jobs.append(_kernel_job(kernel, code, launch, padding))
        slots.append(read_slots(own, side.shown))
    joined = join_slots(slots[0], slots[-1]) if slots else ()
    constants = [flag.partition("=")[0] for code in codes for flag in code.compiled.flags]  # Triton's constants and types
    known = {*constants, *(name for slot in joined for name in (slot.name, slot.other_name))}
    unknown = [name for name in terms.sizes if name not in known]
    if joined and unknown:
        names = ", ".join(slot.name for slot in joined)
        raise UsageError(f"--shape: expected a parameter of the kernels, found {unknown[0]!r}; they have: {names}")
    is_plane = any(kernel is not None and kernel.launches and kernel.launches[0].block[1] > 1 for kernel in kernels)
    return TimingJob(a=jobs[0], b=jobs[1], slots=joined, is_plane=is_plane, terms=terms)


def read_call(text: str | None, slots: tuple[Slot, ...]) -> tuple[dict[str, float], dict[str, str]]:
    """Read --call 'kernel(x, x, 2.5, n)': numbers are scalars, and pointers of the same name share a buffer.

    Raises UsageError: for text in another form.
    """
    if text is None:
        return {}, {}
    inner = text.partition("(")[2].rpartition(")")[0]
    words = [word.strip() for word in inner.split(",")]
    if not inner or len(words) != len(slots):
        raise UsageError(f"--call: expected KERNEL(ARGUMENT, ...) with {len(slots)} arguments, found {text!r}")
    scalars: dict[str, float] = {}
    aliases: dict[str, str] = {}
    for slot, word in zip(slots, words, strict=True):
        if slot.is_pointer and word != slot.name:
            aliases[slot.name] = word
        elif not slot.is_pointer and word != slot.name:
            try:
                scalars[slot.name] = float(word)
            except ValueError:
                raise UsageError(f"--call: {slot.name}: expected a number or {slot.name} itself, found {word!r}") from None
    return scalars, aliases


def with_launches(job: TimingJob, launches: tuple[str, str]) -> TimingJob:
    """Return a job with known launches, without searches and checks."""
    sides = []
    for side, text in zip((job.a, job.b), launches, strict=True):
        if isinstance(side, KernelJob):
            known = read_launch(text)
            side = msgspec.structs.replace(side, grid=known.grid, blocks=(known.block or side.blocks[0],), fixed_blocks=())  # noqa: PLW2901
        sides.append(side)
    return msgspec.structs.replace(job, a=sides[0], b=sides[1], terms=msgspec.structs.replace(job.terms, checks=False))


def _kernel_job(kernel: KernelSide, code: SideCode, launch: GivenLaunch, padding: tuple[int, ...]) -> KernelJob:
    if not code.compiled.cubin:
        raise NotTimedError(f"{code.shown}: expected a cubin to run, found PTX alone; put ptxas on PATH to assemble it")
    own = kernel.code
    lines = (*own.sass, *own.ptx)
    is_plane = any(each.block[1] > 1 for each in kernel.launches)
    is_known = own.max_threads or own.required_block or launch.block or is_plane
    reads_block = not own.ptx or any("%ntid" in (line.exact or line.text) for line in own.ptx)
    return KernelJob(
        name=own.name,
        symbol=own.symbol,
        cubin=code.compiled.cubin,
        blocks=tuple(dict.fromkeys(each.block for each in kernel.launches)) or ((256, 1, 1),),
        grid=launch.grid,
        shared_bytes=own.dynamic_shared_bytes,
        strides=any(word in (line.exact or line.text) for line in lines for word in _GRID_SIZE_WORDS),
        resident_blocks_count=kernel.occupancy.blocks_count if kernel.occupancy else 1,
        padding_bytes=padding,
        fixed_blocks=() if is_known or reads_block else _FIXED_BLOCKS,
    )
