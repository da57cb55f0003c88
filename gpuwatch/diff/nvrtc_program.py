"""CUDA sources compiled in this process by NVRTC, without GPU, driver or host compiler."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.diff import toolchain
from gpuwatch.diff.compiled import Compiled
from gpuwatch.errors import UsageError

# Names that nvcc's headers declare in every file.
_PRELUDE = """#pragma once
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned uint32_t; typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define FLT_MAX 3.402823466e+38f
"""
# NVRTC or the prelude declares the contents of these headers; the real headers need a host compiler.
_C_HEADERS = [each for name in ("stdio", "math", "stdint", "float") for each in (f"{name}.h", f"c{name}")]
_KNOWN = ["cuda_runtime.h", "device_launch_parameters.h", *_C_HEADERS]
_HEADERS = {b"gpuwatch_prelude.h": _PRELUDE.encode()} | {name.encode(): b"" for name in _KNOWN}
_OWN_FLAGS = ("--pre-include=gpuwatch_prelude.h",)


class NvrtcFailure(Exception):  # noqa: N818 - not final: nvcc may still compile the program
    """Error for a program that NVRTC rejects; ``log`` is NVRTC's log."""

    def __init__(self, log: str, *, is_option: bool) -> None:
        super().__init__(log)
        self.log = log
        self.is_option = is_option


def compile_source(nvrtc: Any, source: Path, flags: Sequence[str], instance: str) -> Compiled:
    """Compile a file with ``flags``, which name the -arch; ``instance`` is a template instance to compile, empty for none.

    Raises NvrtcFailure: when NVRTC rejects the file.
    Raises UsageError: when the file cannot be read.
    """
    headers = [f"-I{folder}" for folder in (source.resolve().parent, *toolchain.include_folders())]
    given = [*flags, *headers, *_OWN_FLAGS]
    found = _run(nvrtc, source, [*given, "-lineinfo", "--ptxas-options=-v"], instance)
    try:
        debug = _run(nvrtc, source, [*given, "-G"], instance).cubin
    except NvrtcFailure:
        debug = b""
    return msgspec.structs.replace(found, debug=debug)


def describe(nvrtc: Any) -> str:
    _, major, minor = nvrtc.nvrtcVersion()
    return f"NVRTC {major}.{minor}"


def _run(nvrtc: Any, source: Path, flags: Sequence[str], instance: str) -> Compiled:
    try:
        text = source.read_bytes()
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}") from error
    name = str(source.resolve()).encode(errors="surrogateescape")
    program = _checked(nvrtc.nvrtcCreateProgram(text, name, len(_HEADERS), list(_HEADERS.values()), list(_HEADERS)))
    try:
        if instance:
            _checked(nvrtc.nvrtcAddNameExpression(program, instance.encode()))
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
    content = bytes(room)  # the binding writes into a bytes object, as in NVIDIA's samples
    _checked(read(program, content))
    return content


def _checked(answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if int(status):
        raise NvrtcFailure(f"error: {getattr(status, 'name', status)}", is_option=False)
    return values[0] if values else None
