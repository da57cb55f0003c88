"""The public Python names, by their import module, and the gaps in their docstrings."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpuwatch
from tests.reference.docstring_parts import Parts, split_docstring

ROOT = Path(__file__).parents[2]
# Names of gpuwatch.__all__ in the order of the page; then public names of other modules.
MODULES: Mapping[str, tuple[str, ...]] = {
    "gpuwatch": (
        "window", "Window", "verdicts", "start", "bench", "Measurement", "compare", "Compared", "do_bench",
        "Claim", "Policy", "Status", "Verdict", "Finding", "GpuwatchError", "UsageError", "RejectedError", "WrongResultError",
    ),
    "gpuwatch.auto": ("results", "report"),
    "gpuwatch.errors": ("SourceError", "SourceGoneError", "DeviceLostError", "StoreError", "ExportError", "DaemonError"),
    "annotate.judge": ("judge",),
    "annotate.capsule.unpack": ("unpack",),
    "annotate.verdict": ("Answered",),
    "annotate.compare.decision": ("Comparison", "Decision"),
    "annotate.stats.intervals": ("Interval",),
    "annotate.evidence": ("Timings", "OtherWork"),
    "annotate.errors": ("AnnotateError", "UnknownNameError", "InvalidValueError", "CapsuleError"),
    "pytest_gpuwatch": ("gpu_window",),
}  # fmt: skip
CONSTANTS = {
    "__version__": split_docstring(
        'Version of gpuwatch as text, such as ``0.2.0``.\n\nRaises nothing.\n\nExample:\n    >>> len(gpuwatch.__version__.split("."))\n    3'
    )
}
CALLED_BY_OTHERS = {"load_ipython_extension"}  # IPython calls it for `%load_ext gpuwatch`
_OURS = ("annotate", "gpuwatch", "pytest_gpuwatch", "tests")  # "tests": the class with gaps in test_public_api
_NOT_FIRST = {"what", "who", "which", "where", "whether", "how", "by", "this"}
_UNITS = re.compile(
    r"seconds|milliseconds|nanoseconds|MHz|\bratio|\bshare|[Cc]ount|Number of|Bytes|bytes|whole number|quantiles|in the (same )?unit|threshold",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class PublicName:
    """One public function, class, method or property."""

    path: str  # gpuwatch.Window.record
    value: Any
    parts: Parts
    owner: type | None = None

    @property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.value)


def list_names() -> Iterator[PublicName]:
    """Yield every function and class, in the order of the page."""
    for module, names in MODULES.items():
        for name in names:
            value = getattr(importlib.import_module(module), name)
            value = getattr(value, "__wrapped__", value) if module == "pytest_gpuwatch" else value
            yield PublicName(f"{module}.{name}", value, split_docstring(value.__doc__))


def list_members(name: PublicName) -> list[PublicName]:
    """Return the public methods and properties of a class and of its bases in this repository, in the order of the code."""
    if not isinstance(name.value, type):
        return []
    found: dict[str, PublicName] = {}
    for base in reversed(_bases(name.value)):
        for member, value in vars(base).items():
            inner = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            if not member.startswith("_") and (inspect.isfunction(inner) or isinstance(inner, property)):
                found.setdefault(member, PublicName(f"{name.path}.{member}", inner, split_docstring(inner.__doc__), name.value))
    return list(found.values())


def attributes_of(value: type) -> set[str]:
    """Return the public attributes of instances, without methods and properties."""
    found: set[str] = set()
    for base in _bases(value):
        found |= {name for name in vars(base).get("__annotations__", {}) if not name.startswith("_")}
        made_by = vars(base).get("__init__")
        if inspect.isfunction(made_by) and "__dataclass_fields__" not in vars(base):
            found |= set(_set_in(made_by))
    return found


def documented_attributes(value: type) -> dict[str, str]:
    """Return the attributes that the docstrings of a class and its bases describe."""
    found: dict[str, str] = {}
    for base in reversed(_bases(value)):
        found |= split_docstring(base.__doc__).attributes
    return found


def _bases(value: type) -> list[type]:
    return [each for each in value.__mro__ if each.__module__.partition(".")[0] in _OURS]


def _set_in(function: Any) -> Iterator[str]:
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        for target in (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        ):
            for each in [target, *getattr(target, "elts", [])]:
                if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
                    yield from () if each.attr.startswith("_") else (each.attr,)


def find_gaps(name: PublicName) -> Iterator[str]:
    """Yield the gaps in the docstrings of a name and of its members."""
    yield from _summary_gaps(name)
    if isinstance(name.value, type):
        yield from _class_gaps(name)
        for member in list_members(name):
            yield from _summary_gaps(member)
            if not isinstance(member.value, property):
                yield from _function_gaps(member)
                if not member.parts.example and f".{member.path.rpartition('.')[2]}(" not in name.parts.example:
                    yield f"{member.path}: no example"
    else:
        yield from _function_gaps(name)
    if not (name.parts.example or name.parts.example_file):
        yield f"{name.path}: no example"
    if name.parts.example_file and not (ROOT / name.parts.example_file).is_file():
        yield f"{name.path}: no file {name.parts.example_file}"


def _summary_gaps(name: PublicName) -> Iterator[str]:
    summary = name.parts.summary
    if not summary:
        yield f"{name.path}: no docstring"
    elif summary.split()[0].lower().strip(",:") in _NOT_FIRST or not re.match(r"[A-Z]|gpuwatch", summary):
        yield f"{name.path}: expected a verb or noun first, found {summary.split()[0]!r}"
    elif not summary.endswith("."):
        yield f"{name.path}: expected a sentence, found {summary!r}"


def _class_gaps(name: PublicName) -> Iterator[str]:
    if not (name.parts.raises or issubclass(name.value, Exception)):
        yield f"{name.path}: the exceptions are undocumented"
    if issubclass(name.value, enum.Enum):
        return
    described = documented_attributes(name.value)
    methods = {member.path.rpartition(".")[2] for member in list_members(name)}
    yield from (
        f"{name.path}.{each}: undocumented attribute" for each in sorted(attributes_of(name.value) - {*described, *methods})
    )
    known = attributes_of(name.value) | methods
    yield from (f"{name.path}.{each}: documented, but not an attribute" for each in sorted(set(described) - known))


def _function_gaps(name: PublicName) -> Iterator[str]:
    signature = name.signature
    asked = [each for each in signature.parameters if each not in ("self", "cls", "request")]
    if asked != list(name.parts.arguments):
        yield f"{name.path}: expected the arguments {asked}, found {list(name.parts.arguments)}"
    for each in asked:
        annotation = str(signature.parameters[each].annotation)
        is_number = re.search(r"\b(float|int)\b", annotation) and "Mapping" not in annotation
        if is_number and not _UNITS.search(name.parts.arguments.get(each, "")):
            yield f"{name.path}: {each}: a number without a unit"
    returns = str(signature.return_annotation)
    if returns != "None" and not name.parts.returns and not name.parts.summary.startswith("Return "):
        yield f"{name.path}: the return value is undocumented"
    if not name.parts.raises:
        yield f"{name.path}: the exceptions are undocumented"


def undocumented() -> set[str]:
    """Return the names in gpuwatch's top level that the page lacks."""
    offered = {
        name
        for name, value in vars(gpuwatch).items()
        if not name.startswith("_") and str(getattr(value, "__module__", "")).partition(".")[0] in _OURS
    }
    later: set[str] = set(gpuwatch._LATER)
    return ({*gpuwatch.__all__} | offered | later) - {*MODULES["gpuwatch"], *CONSTANTS, *CALLED_BY_OTHERS}
