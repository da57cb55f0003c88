"""CUDA sources compiled in this process by NVRTC, without GPU, driver or host compiler."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuwatch.diff import toolchain
from gpuwatch.diff.compiled import Compiled
from gpuwatch.errors import UsageError

# NVRTC knows what these declare, or the few names below; the real headers want a host compiler.
_INTEGERS = "".join(
    f"typedef {sign} {kind} {prefix}int{bits}_t;\n"
    for bits, kind in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
    for sign, prefix in (("signed", ""), ("unsigned", "u"))
)
_STDINT = (
    f"#pragma once\n{_INTEGERS}typedef unsigned long long uintptr_t;\nnamespace std {{ using ::int32_t; using ::uint32_t; }}\n"
)
_HEADERS = {
    b"cuda_runtime.h": b"",
    b"device_launch_parameters.h": b"",
    b"stdio.h": b"",
    b"cstdio": b"",
    b"math.h": b"",
    b"cmath": b"",
    b"stdint.h": _STDINT.encode(),
    b"cstdint": _STDINT.encode(),
}


class NvrtcFailure(Exception):  # noqa: N818 - one of two compilers failed: the other may be asked
    """A program that NVRTC refuses; ``log`` is its words."""

    def __init__(self, log: str, *, is_option: bool) -> None:
        super().__init__(log)
        self.log = log
        self.is_option = is_option


def compile_source(nvrtc: Any, source: Path, flags: Sequence[str], names: Sequence[str]) -> Compiled:
    """Compile a file for ``-arch`` among ``flags``; ``names`` are template instances to be made.

    Raises NvrtcFailure: when NVRTC refuses it.
    """
    headers = [f"-I{folder}" for folder in (source.resolve().parent, *toolchain.include_folders())]
    given = [*flags, *headers]
    found = _run(nvrtc, source, [*given, "-lineinfo", "--ptxas-options=-v"], names)
    try:
        debug = _run(nvrtc, source, [*given, "-G"], names).cubin
    except NvrtcFailure:
        debug = b""
    return Compiled(compiler=found.compiler, flags=tuple(flags), cubin=found.cubin, ptx=found.ptx, log=found.log, debug=debug)


def describe(nvrtc: Any) -> str:
    _, major, minor = nvrtc.nvrtcVersion()
    return f"NVRTC {major}.{minor}"


def _run(nvrtc: Any, source: Path, flags: Sequence[str], names: Sequence[str]) -> Compiled:
    try:
        text = source.read_bytes()
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}") from error
    program = _checked(
        nvrtc.nvrtcCreateProgram(
            text, str(source).encode(errors="surrogateescape"), len(_HEADERS), list(_HEADERS.values()), list(_HEADERS)
        )
    )
    try:
        for name in names:
            _checked(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        options = [flag.encode(errors="surrogateescape") for flag in flags]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode(errors="replace").rstrip("\0")
        if int(status):
            is_option = int(status) == int(nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION)
            raise NvrtcFailure(log or status.name, is_option=is_option)
        cubin = _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        ptx = _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).decode(errors="replace").rstrip("\0")
        return Compiled(compiler=describe(nvrtc), cubin=cubin, ptx=ptx, log=log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _text(size: Any, read: Any, program: Any) -> bytes:
    room = bytearray(b" " * int(_checked(size(program))))
    content = bytes(room)  # the binding writes into a bytes object, as its own samples do
    _checked(read(program, content))
    return content


def _checked(answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if int(status):
        raise NvrtcFailure(f"error: {getattr(status, 'name', status)}", is_option=False)
    return values[0] if values else None
