"""Static facts of a kernel: parameters, resources, PTX and SASS."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest

from gpuwatch.diff import ptx_code, sass, symbols
from gpuwatch.diff.code_line import CodeLine
from gpuwatch.diff.compiled import Compiled
from gpuwatch.diff.compiler_log import spilled_bytes
from gpuwatch.diff.cubin import CubinKernel, parameter_names, read_cubin
from gpuwatch.diff.sides import Side
from gpuwatch.diff.source_lines import source_lines
from gpuwatch.errors import UsageError

_LIBRARIES = ("cub::", "thrust::")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter; name and type are empty if unknown."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCode(CubinKernel):
    """One kernel with its code.  Spill bytes are None if no log lists them, and SASS is missing or uses local memory."""

    name: str
    parameters: tuple[Parameter, ...] = ()
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    dynamic_shared_bytes: int = 0
    sass: tuple[CodeLine, ...] = ()
    ptx: tuple[CodeLine, ...] = ()

    @property
    def signature(self) -> str:
        """Return the kernel's name and parameters as text."""
        texts = [f"{each.type or f'{each.bytes_count} bytes'} {each.name}".strip() for each in self.parameters]
        return f"{self.name}({', '.join(texts)})"


@dataclass(frozen=True, slots=True)
class SideCode:
    """The kernels of one side, from the cubin, or from the PTX if there is no cubin."""

    shown: str
    compiled: Compiled
    kernels: tuple[CubinKernel, ...]

    @property
    def kernel_symbols(self) -> tuple[str, ...]:
        return tuple(each.symbol for each in self.kernels)


def read_side(compiled: Compiled, side: Side) -> SideCode:
    """Read the kernels of a compiled side.

    Raises UsageError: for a damaged cubin, for code without a kernel, and for a cubin without pyelftools.
    """
    kernels = [CubinKernel(name) for name in ptx_code.read_ptx(compiled.ptx)]
    if compiled.cubin:
        _, kernels = read_cubin(compiled.cubin, side.shown)
    if not kernels:
        hint = "; a template is compiled for the types that --fn names, as: --fn 'scale<float,256>'"
        raise UsageError(f"{side.shown}: expected a kernel, found none{hint if side.language == 'cuda' else ''}")
    # Headers of CUB and Thrust add library kernels to every file.
    own = [each for each in kernels if not symbols.full_name(each.symbol).startswith(_LIBRARIES)] or kernels
    return SideCode(side.shown, compiled, tuple(sorted(own, key=lambda each: symbols.full_name(each.symbol))))


def read_kernels(side: SideCode, chosen: Sequence[str]) -> dict[str, KernelCode]:
    """Return the chosen kernels of a side with their code.

    Raises UsageError: when nvdisasm or pyelftools is missing, or nvdisasm cannot read the cubin.
    """
    compiled = side.compiled
    ptx = ptx_code.read_ptx(compiled.ptx)
    functions = sass.disassemble(compiled.cubin, side.shown) if compiled.cubin else {}
    lines = source_lines(compiled.cubin) if compiled.cubin else {}
    named = parameter_names(compiled.debug) if compiled.debug else {}
    spilled = spilled_bytes(compiled.log)
    found = {}
    for symbol, kernel in ((each.symbol, each) for each in side.kernels if each.symbol in chosen):
        code = sass.read_function(functions.get(symbol, ()), lines.get(symbol, {}))
        stores, loads = spilled.get(symbol) or _spills_without_log(code)
        found[symbol] = KernelCode(
            **asdict(kernel),
            spill_store_bytes=stores,
            spill_load_bytes=loads,
            name=symbols.full_name(symbol),
            parameters=_parameters(kernel, compiled.parameters or named.get(symbol, ())),
            dynamic_shared_bytes=compiled.dynamic_shared_bytes,
            sass=code,
            ptx=ptx.get(symbol, ()),
        )
    return found


def _spills_without_log(code: Sequence[CodeLine]) -> tuple[int | None, int | None]:
    return (0, 0) if code and not any(each.kind.startswith(("LDL", "STL")) for each in code) else (None, None)


def _parameters(kernel: CubinKernel, named: Sequence[tuple[str, str]]) -> tuple[Parameter, ...]:
    types = symbols.parameter_types(kernel.symbol) or [type_ for _, type_ in named]
    names = [name for name, _ in named]
    count = max(len(kernel.parameter_bytes), len(types))
    joined = zip_longest(names[:count], types, kernel.parameter_bytes)
    return tuple(Parameter(name or "", type_ or "", size) for name, type_, size in joined)
