"""Compilation of one side, with a cache for CUDA sources."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gpuwatch.diff import nvcc_process, nvrtc_program, toolchain
from gpuwatch.diff.compiled import CompileCache, Compiled, digest
from gpuwatch.diff.compiler_log import missing_header, refusal
from gpuwatch.diff.include_files import included_files, map_includes
from gpuwatch.diff.sides import Side
from gpuwatch.errors import UsageError

DEFAULT_ARCH = "sm_90"


def compile_side(
    side: Side, arch: str, flags: tuple[str, ...], cache: CompileCache, sizes: Mapping[str, int], types: Mapping[str, str]
) -> Compiled:
    """Compile a side, or read a cubin, or PTX without ptxas.  ``sizes`` and ``types`` are for Triton, by parameter name.

    Raises UsageError: when the side cannot be compiled, and for a flag of nvcc that sets the output.
    """
    if side.language == "cubin":
        return Compiled(compiler="a cubin as given", cubin=side.path.read_bytes())
    if side.language == "ptx":
        ptxas = toolchain.find_tool("ptxas")
        if ptxas is not None:
            return nvcc_process.assemble(ptxas, side.path, arch, side.shown)
        text = side.path.read_text(encoding="utf-8", errors="replace")
        return Compiled(compiler="PTX as given (no ptxas: no SASS)", ptx=text)
    if side.language == "triton":
        from gpuwatch.diff import triton_kernels

        return triton_kernels.compile_kernel(side, arch, sizes, types)
    nvcc_process.check_flags(flags)
    return _compile_cuda(side, (f"-arch={arch}", *flags), cache)


def _compile_cuda(side: Side, shown_flags: tuple[str, ...], cache: CompileCache) -> Compiled:
    nvrtc, nvcc = toolchain.import_nvrtc(), toolchain.find_tool("nvcc")
    if nvrtc is None and nvcc is None:
        raise UsageError(f"{side.shown}: expected NVRTC or nvcc to compile it, found neither; run: {toolchain.EXTRA}")
    has_host_code = nvcc_process.has_host_code(side.path)
    if has_host_code and nvcc is None:
        raise UsageError(
            f"{side.shown}: expected device code alone, found host code, which needs nvcc; run: {toolchain.NVCC_EXTRA}, "
            "or move the host code to another file"
        )
    instance = side.kernel if "<" in side.kernel else ""  # a template instance that the source need not instantiate
    # Headers of a Git revision are read from that revision's worktree.
    flags, folders = map_includes(shown_flags, side.tree.mapped if side.tree is not None else str)
    compilers = [nvrtc_program.describe(nvrtc)] if nvrtc is not None else []
    compilers += [toolchain.version_of(nvcc)] if nvcc is not None else []
    key = _key(side.path, folders, [*compilers, *shown_flags, "", instance])
    compiled = cache.read(key) if key else None
    if compiled is not None:
        return compiled
    if nvrtc is not None and not has_host_code:
        try:
            compiled = nvrtc_program.compile_source(nvrtc, side.path, flags, instance)
        except nvrtc_program.NvrtcFailure as failure:
            # nvcc may succeed after a missing host header, an unknown flag, or a header that rejects NVRTC.
            may_be_nvccs = failure.is_option or missing_header(failure.log) is not None or "NVRTC" in failure.log
            if nvcc is None or not may_be_nvccs:
                hint = f"; nvcc may compile it: {toolchain.NVCC_EXTRA}" if may_be_nvccs else ""
                raise UsageError(refusal(failure.log, side.path, side.shown) + hint) from failure
    if compiled is None and nvcc is not None:
        compiled = nvcc_process.compile_source(nvcc, side.path, flags, instance, side.shown)
    assert compiled is not None  # noqa: S101 - a compiler returned a result or raised an error
    compiled = msgspec.structs.replace(compiled, flags=shown_flags)
    if key:
        cache.store(key, compiled)
    return compiled


def _key(source: Path, folders: Sequence[Path], words: Sequence[str]) -> str | None:
    """Return the cache key of a compilation; None if the source's includes are uncertain."""
    included = included_files(source, folders)
    if included is None:
        return None
    texts = [part for path in (source, *included) for part in (path.name.encode(errors="surrogateescape"), path.read_bytes())]
    return digest([*(word.encode(errors="surrogateescape") for word in words), *texts])
