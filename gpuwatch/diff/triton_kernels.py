"""Triton kernels compiled without a GPU, with types and sizes from parameter names, options or defaults."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gpuwatch.comparing.load_variants import load, load_checked_out
from gpuwatch.diff.compiled import Compiled
from gpuwatch.diff.sides import Side
from gpuwatch.errors import GpuwatchError, UsageError

_POINTER, _INTEGER = "*fp32", "i32"
_ALIGNMENT = 16  # bytes; Triton's launcher declares this divisibility of pointers, and of sizes that are multiples


class PlainFunctionError(UsageError):
    """Error for a Python function that is not a Triton kernel: it can be timed, but has no code to compare."""


def compile_kernel(side: Side, arch: str, sizes: Mapping[str, int], types: Mapping[str, str]) -> Compiled:
    """Compile the Triton kernel that a side names.

    Raises UsageError: without Triton or a name, and for a kernel that cannot be loaded or compiled.
    """
    if not side.kernel:
        raise UsageError(f"{side.shown}: expected FILE.py:KERNEL, or its name with --fn, found no name")
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError:
        raise UsageError(f"{side.shown}: expected Triton to compile it, found none; run: pip install triton") from None
    with _cache_of_its_own():
        kernel = _kernel(side)
        signature, constants = _signature(side, kernel, sizes, types)
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=_attributes(kernel, signature, sizes))
        options = {name: sizes[name] for name in ("num_warps", "num_stages") if name in sizes}
        target = GPUTarget("cuda", int(arch.removeprefix("sm_").rstrip("af")), 32)
        try:
            built = triton.compile(source, target=target, options=options)
        except Exception as error:
            reason = " ".join(str(error).split())[-200:]  # the reason is at the end, after the source
            given = ", ".join(f"{name}={type_}" for name, type_ in signature.items() if type_ != "constexpr")
            # The first argument in --dtype, else the first of all, may be a pointer without its star.
            name, type_ = next(((each, types[each]) for each in types if each in signature), next(iter(signature.items())))
            hint = "names another type" if type_.startswith("*") else "makes it a pointer"
            raise UsageError(
                f"{side.shown}: expected a kernel that Triton compiles with the types {given}, found {type(error).__name__}: "
                f"{reason}; --dtype '{name}=*{'fp16' if type_.startswith('*') else type_}' {hint}"
            ) from error
    flags = tuple(f"{name}={value}" for name, value in {**signature, **constants}.items())
    return Compiled(
        compiler=f"Triton {triton.__version__}",
        flags=(f"-arch={arch}", f"num_warps={built.metadata.num_warps}", *flags),
        cubin=built.asm["cubin"],
        ptx=built.asm["ptx"],
        dynamic_shared_bytes=int(built.metadata.shared),
        parameters=tuple((name, type_) for name, type_ in signature.items() if type_ != "constexpr"),
    )


def _kernel(side: Side) -> Any:  # triton has no types
    try:
        if side.tree is not None:
            found: Any = load_checked_out(side.tree, side.path, side.kernel, side.shown)
        else:
            found = load(f"{side.path}:{side.kernel}").call
    except GpuwatchError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise UsageError(f"{side.shown}: expected a file that can be imported, found one that raises {reason}") from error
    while not hasattr(found, "arg_names") or not hasattr(found, "cache_key"):
        if not hasattr(found, "fn"):  # @triton.autotune and @triton.heuristics wrap the kernel as ``fn``
            raise PlainFunctionError(
                f"{side.shown}: expected a Triton kernel, found a Python function; it has no code to compare without a GPU"
            )
        found = found.fn
    return found


def _signature(
    side: Side, kernel: Any, sizes: Mapping[str, int], types: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, Any]]:
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    for each in kernel.params:
        if each.is_constexpr:
            signature[each.name] = "constexpr"
            if each.name not in sizes and not each.has_default:
                raise UsageError(
                    f"{side.shown}: expected a value of {each.name}, found none; give it as --shape {each.name}=1024"
                )
            constants[each.name] = sizes.get(each.name, each.default if each.has_default else None)
        elif each.name in types:
            signature[each.name] = types[each.name]
        else:
            signature[each.name] = _POINTER if each.name.lower().endswith("ptr") else _INTEGER
    return signature, constants


def _attributes(kernel: Any, signature: Mapping[str, str], sizes: Mapping[str, int]) -> dict[tuple[int], list[list[Any]]]:
    return {
        (index,): [["tt.divisibility", _ALIGNMENT]]
        for index, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*") or (signature[name].startswith("i") and sizes.get(name, 1) % _ALIGNMENT == 0)
    }


@contextmanager
def _cache_of_its_own() -> Iterator[None]:
    """Point Triton's cache to a temporary folder, so that no file is left in the user's home."""
    before = {name: value for name, value in os.environ.items() if name == "TRITON_CACHE_DIR"}
    with tempfile.TemporaryDirectory(prefix="gpuwatch-diff-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["TRITON_CACHE_DIR"]
            os.environ.update(before)
