"""Timing functions that differ from their library's own.

A measured time depends on the clock that the program calls.  A replacement may be a test's fake clock, or an attempt to
look fast: the judge reports the replacement, not the reason.
"""

import sys
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType, WrapperDescriptorType

_CLOCKS = (
    "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "process_time", "thread_time",
)  # fmt: skip
_IN_C = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)
_TORCH = (
    ("torch.cuda.streams", "Event", ("record", "synchronize", "wait", "elapsed_time", "query")),
    ("torch.cuda.streams", "Stream", ("synchronize", "record_event", "wait_event")),
)


def replaced() -> tuple[str, ...]:
    """Return the names of the replaced functions and classes, sorted; modules that the program did not import are skipped."""
    return tuple(sorted({*_clocks(), *_events(), *_synchronisation()}))


def _clocks() -> list[str]:
    # From sys.modules, where the program's own imports find the module.
    time = sys.modules.get("time")
    return [f"time.{name}" for name in _CLOCKS if time is not None and not _is_builtin(getattr(time, name, None), time, name)]


def _is_builtin(function: object, module: ModuleType, name: str) -> bool:
    return isinstance(function, BuiltinFunctionType) and function.__self__ is module and function.__name__ == name


def _events() -> list[str]:
    found = []
    public = sys.modules.get("torch.cuda")
    for module_name, class_name, methods in _TORCH:
        module = sys.modules.get(module_name)
        kind = getattr(module, class_name, None)
        if module is None or public is None or kind is None:
            continue
        if getattr(public, class_name, kind) is not kind or not isinstance(kind, type) or kind.__module__ != module_name:
            found.append(f"torch.cuda.{class_name}")
            continue
        found += [
            f"torch.cuda.{class_name}.{name}"
            for name in methods
            if _is_foreign(getattr(kind, name, None), module, f"{class_name}.{name}")
        ]
    return found


def _synchronisation() -> list[str]:
    module = sys.modules.get("torch.cuda")
    function = getattr(module, "synchronize", None)
    return ["torch.cuda.synchronize"] if module is not None and _is_foreign(function, module, "synchronize") else []


def _is_foreign(function: object, module: ModuleType, name: str) -> bool:
    """Return True for code from another file or of another name, and for an object that is not a function.

    Attributes that ``functools.wraps`` copies are ignored.  C functions cannot be distinguished further, so they pass.
    None passes too.
    """
    if isinstance(function, FunctionType):
        code = function.__code__
        return code.co_filename != getattr(module, "__file__", code.co_filename) or code.co_name != name.rpartition(".")[2]
    return function is not None and not isinstance(function, _IN_C)
