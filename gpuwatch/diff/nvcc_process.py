"""Runs of nvcc, for CUDA sources that NVRTC cannot compile, and of ptxas, for PTX, in temporary folders."""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpuwatch.diff import toolchain
from gpuwatch.diff.compiled import Compiled
from gpuwatch.diff.compiler_log import refusal
from gpuwatch.errors import UsageError

_HOST_COMPILER = "host compiler"  # in nvcc's message if g++ is missing or too new
_NOISE = re.compile(r'//.*?$|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S | re.M)
_HOST = re.compile(r"<<<|\bmain\s*\(")
# gpuwatch sets the kind and place of outputs, so that no file is left in the user's folders.
_OWN_FLAGS = ("-o", "-c", "--output-file", "-run", "--run", "-keep", "--keep", "-save-temps", "--save-temps", "-odir", "-dc")


def has_host_code(source: Path) -> bool:
    """Return True for a file that launches kernels or has a main function, outside comments and strings."""
    return _HOST.search(_NOISE.sub(" ", source.read_text(encoding="utf-8", errors="replace"))) is not None


def check_flags(flags: Sequence[str]) -> None:
    """Check compiler flags.

    Raises UsageError: for a flag that sets the kind or place of outputs.
    """
    for flag in flags:
        if flag.partition("=")[0] in _OWN_FLAGS:
            raise UsageError(f"{flag}: expected compiler flags that change the code, found one that sets the output; remove it")


def compile_source(nvcc: Path, source: Path, flags: Sequence[str], instance: str, shown: str) -> Compiled:
    """Compile the device code of a file; ``instance`` is a template instance to compile, empty for none.

    Raises UsageError: when nvcc fails (with one of its errors), cannot start or takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="gpuwatch-diff-") as made:
        folder = Path(made)
        unit = source.resolve()
        if instance:
            # Include the source and take the instance's address, so that nvcc compiles the instance.
            text = f'#include "{unit}"\n__attribute__((used)) static auto gpuwatch_use_0 = &{instance};\n'
            unit = folder / "instances.cu"
            unit.write_text(text, encoding="utf-8", errors="surrogateescape")
        command = [str(nvcc), "-cubin", *flags, f"-I{source.resolve().parent}", str(unit)]
        if toolchain.is_from_wheel(nvcc):  # a wheel's nvcc does not search the other wheels' headers
            command += [f"-I{each}" for each in toolchain.include_folders()]
        (folder / "kept").mkdir()
        cubin, debug = folder / "code.cubin", folder / "debug.cubin"
        kept = ["-lineinfo", "-Xptxas", "-v", "-keep", "-keep-dir", str(folder / "kept")]
        done = toolchain.run_tool([*command, *kept, "-o", str(cubin)])
        if done.returncode != 0 or not cubin.is_file():
            message = refusal(done.stderr + done.stdout, source, shown)
            raise UsageError(f"{message}; nvcc needs a host compiler, install g++" if _HOST_COMPILER in message else message)
        toolchain.run_tool([*command, "-G", "-o", str(debug)])
        ptx = next(iter(sorted((folder / "kept").glob("*.ptx"))), None)
        return Compiled(
            compiler=f"nvcc {toolchain.release_of(nvcc)}",
            cubin=cubin.read_bytes(),
            ptx=ptx.read_text(errors="replace") if ptx is not None else "",
            log=done.stderr,
            debug=debug.read_bytes() if debug.is_file() else b"",
        )


def assemble(ptxas: Path, source: Path, arch: str, shown: str) -> Compiled:
    """Assemble a PTX file.

    Raises UsageError: when ptxas fails (with one of its errors), cannot start or takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="gpuwatch-diff-") as made:
        cubin = Path(made) / "code.cubin"
        flags = (f"-arch={arch}",)
        done = toolchain.run_tool([str(ptxas), *flags, "-v", "-lineinfo", "-o", str(cubin), str(source.resolve())])
        if done.returncode != 0 or not cubin.is_file():
            raise UsageError(refusal(done.stderr + done.stdout, source, shown))
        name = f"ptxas {toolchain.release_of(ptxas)}"
        text = source.read_text(encoding="utf-8", errors="replace")
        return Compiled(compiler=name, flags=flags, cubin=cubin.read_bytes(), ptx=text, log=done.stderr)
