"""Everything that is known of a kernel before it runs: parameters, resources, PTX and SASS."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuwatch.diff import debug_info, ptx_code, sass, symbols
from gpuwatch.diff.code_line import CodeLine
from gpuwatch.diff.compiled import Compiled
from gpuwatch.diff.compiler_log import Usage, resource_usage
from gpuwatch.diff.cubin import CubinKernel, read_cubin
from gpuwatch.diff.sides import Side
from gpuwatch.errors import UsageError

Threads = tuple[int, int, int]
_LIBRARIES = ("cub::", "thrust::")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter; name and type are empty where nothing tells them."""

    name: str
    type: str
    bytes_count: int | None

    @property
    def is_pointer(self) -> bool:
        return self.type.endswith("*") or self.type.startswith("*")  # in C++, in Triton

    @property
    def is_input(self) -> bool:
        """Return True for a pointer to constants."""
        return self.is_pointer and self.type.removesuffix("*").rstrip().endswith("const")


@dataclass(frozen=True, slots=True)
class KernelCode:
    """One kernel.  ``None`` is "not known": without ptxas nobody knows registers, and a given cubin has no log of spills."""

    symbol: str
    name: str
    parameters: tuple[Parameter, ...]
    registers_count: int | None
    spill_store_bytes: int | None
    spill_load_bytes: int | None
    shared_bytes: int | None
    dynamic_shared_bytes: int
    stack_bytes: int | None
    max_threads: Threads | None
    required_block: Threads | None
    sass: tuple[CodeLine, ...]
    ptx: tuple[CodeLine, ...]

    @property
    def signature(self) -> str:
        """Return the parameters as a reader of the source knows them."""
        texts = [f"{each.type or _bytes(each)} {each.name}".strip() for each in self.parameters]
        return f"{self.name}({', '.join(texts)})"


@dataclass(frozen=True, slots=True)
class SideCode:
    """The kernels of one side by symbol: the cubin's, or those of PTX that nobody could assemble."""

    shown: str
    compiled: Compiled
    arch: str | None
    kernels: tuple[CubinKernel, ...]
    is_assembled: bool

    @property
    def kernel_symbols(self) -> tuple[str, ...]:
        return tuple(each.symbol for each in self.kernels)


def read_side(compiled: Compiled, side: Side) -> SideCode:
    """Read the kernels of a compiled side.  Raises UsageError: for a damaged cubin, and for one without a kernel."""
    shown = side.shown
    if compiled.cubin:
        arch, kernels = read_cubin(compiled.cubin, shown)
        # Headers of CUB and Thrust bring kernels of their own into every file.
        own = [each for each in kernels if not symbols.full_name(each.symbol).startswith(_LIBRARIES)] or kernels
        found = SideCode(
            shown, compiled, arch, tuple(sorted(own, key=lambda each: symbols.full_name(each.symbol))), is_assembled=True
        )
    else:
        names = ptx_code.read_ptx(compiled.ptx)
        found = SideCode(shown, compiled, None, tuple(CubinKernel(name) for name in names), is_assembled=False)
    if not found.kernels:
        hint = "; a template is compiled for the types that --fn names, as: --fn 'scale<float,256>'"
        raise UsageError(f"{shown}: expected a kernel, found none{hint if side.language == 'cuda' else ''}")
    return found


def read_kernels(side: SideCode, chosen: Sequence[str]) -> dict[str, KernelCode]:
    """Return the chosen kernels of a side with their code.  Raises UsageError: when nvdisasm or pyelftools is missing."""
    compiled = side.compiled
    ptx = ptx_code.read_ptx(compiled.ptx)
    functions = sass.disassemble(compiled.cubin, side.shown) if compiled.cubin else {}
    lines = debug_info.source_lines(compiled.cubin) if compiled.cubin else {}
    named = debug_info.parameter_names(compiled.debug) if compiled.debug else {}
    usage = resource_usage(compiled.log)
    found = {}
    for kernel in (each for each in side.kernels if each.symbol in chosen):
        code = sass.read_function(functions.get(kernel.symbol, ()), lines.get(kernel.symbol, {}))
        known = usage.get(kernel.symbol)
        found[kernel.symbol] = _kernel(
            side, kernel, known, _parameters(kernel, compiled.parameters or named.get(kernel.symbol, ())), code, ptx
        )
    return found


def _kernel(
    side: SideCode,
    kernel: CubinKernel,
    usage: Usage | None,
    parameters: tuple[Parameter, ...],
    code: tuple[CodeLine, ...],
    ptx: dict[str, tuple[CodeLine, ...]],
) -> KernelCode:
    has_no_spills = usage is None and code and not any(each.kind.startswith(("LDL", "STL")) for each in code)
    spills = (usage.spill_store_bytes, usage.spill_load_bytes) if usage else (0, 0) if has_no_spills else (None, None)
    is_known = side.is_assembled
    return KernelCode(
        symbol=kernel.symbol,
        name=symbols.full_name(kernel.symbol),
        parameters=parameters,
        registers_count=kernel.registers_count if is_known else None,
        spill_store_bytes=spills[0],
        spill_load_bytes=spills[1],
        shared_bytes=(usage.shared_bytes if usage else kernel.shared_bytes) if is_known else None,
        dynamic_shared_bytes=side.compiled.dynamic_shared_bytes,
        stack_bytes=kernel.stack_bytes if is_known else None,
        max_threads=kernel.max_threads,
        required_block=kernel.required_block,
        sass=code,
        ptx=ptx.get(kernel.symbol, ()),
    )


def _parameters(kernel: CubinKernel, named: Sequence[tuple[str, str]]) -> tuple[Parameter, ...]:
    """Join what three places tell: the cubin the sizes, the symbol the types, DWARF the names, and types of ``extern "C"``."""
    types = symbols.parameter_types(kernel.symbol) or tuple(type_ for _, type_ in named)
    count = max(len(kernel.parameter_bytes), len(types))
    padded = [
        (
            named[index][0] if index < len(named) else "",
            types[index] if index < len(types) else "",
            kernel.parameter_bytes[index] if index < len(kernel.parameter_bytes) else None,
        )
        for index in range(count)
    ]
    return tuple(Parameter(*each) for each in padded)


def _bytes(parameter: Parameter) -> str:
    return f"{parameter.bytes_count} bytes"
