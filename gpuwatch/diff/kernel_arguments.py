"""The arguments of a pair of kernels from their signatures: buffers, sizes and scalars."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuwatch.diff.kernel_code import Parameter
from gpuwatch.diff.launch_geometry import is_size
from gpuwatch.errors import UsageError
from gpuwatch.utf8 import found_words

_WORDS = {
    "f4": ("float", "fp32"),
    "f8": ("double", "fp64"),
    "f2": ("__half", "half", "fp16"),
    "bf16": ("__nv_bfloat16", "bf16"),
    "i1": ("char", "signed char", "i8"),
    "u1": ("unsigned char", "uchar", "u8", "bool", "i1"),
    "i2": ("short", "i16"),
    "u2": ("unsigned short", "ushort", "u16"),
    "i4": ("int", "i32"),
    "u4": ("unsigned int", "unsigned", "uint", "u32"),
    "i8": ("long", "long long", "longlong", "i64"),
    "u8": ("unsigned long", "unsigned long long", "ulonglong", "ulong", "u64"),
}
_KINDS = {word: kind for kind, words in _WORDS.items() for word in words}
_VECTOR = re.compile(r"(u?(?:char|short|int|long|longlong)|float|double|__half|__nv_bfloat16)([1-4])")
_QUALIFIERS = re.compile(r"\b(?:const|volatile|restrict|__restrict__)\b")
_LEADING = re.compile(r"stride\w*|ld\w*")  # names for the distance of two rows
ROW_LENGTHS = ("cols", "columns", "width", "n_cols", "n_columns")
ROW_LENGTH = 1024  # elements in a row of a row-wise kernel
_MOST_SIZE, _SIZE_DIGITS = 1 << 40, 13  # more elements than any GPU's memory has bytes
_SCALES = {"k": 1024, "m": 1024**2, "g": 1024**3}
_STEP = 256  # sizes are multiples of this, plus ``extra_count``


class NotTimedError(UsageError):
    """Error for a pair whose code can be compared but not run."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument of both kernels: ``kind`` is numpy's type code or bf16, ``other_name`` the argument's name in B."""

    name: str
    kind: str
    is_pointer: bool
    is_input: bool = False
    other_name: str = ""

    @property
    def itemsize(self) -> int:
        return 2 if self.kind == "bf16" else int(self.kind[1])

    @property
    def is_float(self) -> bool:
        return self.kind[0] in "fb"

    @property
    def is_size(self) -> bool:
        return not self.is_pointer and not self.is_float and any(map(is_size, (self.name, self.other_name)))


@dataclass(frozen=True, slots=True)
class SizePlan:
    """Values of the integer arguments by A's name, and the number of elements of each buffer."""

    sizes: Mapping[str, int]
    elements_count: int

    def __str__(self) -> str:
        return " ".join(f"{name}={size}" for name, size in self.sizes.items()) or f"{self.elements_count} elements"


def read_slots(parameters: Sequence[Parameter], shown: str) -> tuple[Slot, ...]:
    """Return the arguments of a kernel.

    Raises NotTimedError: for a type without test values.
    """
    slots = []
    for number, each in enumerate(parameters, start=1):
        word = " ".join(_QUALIFIERS.sub("", each.type).replace("*", "", 1).split())
        vector = _VECTOR.fullmatch(word)
        kind = _KINDS.get(vector[1] if vector else word)
        if kind is None or (vector and not each.is_pointer):
            found = each.type or f"{each.bytes_count} bytes of no known type"
            name = each.name or f"argument {number}"
            raise NotTimedError(f"{shown}: {name}: expected a number or a pointer to numbers, found {found}")
        slots.append(Slot(each.name or f"argument{number}", kind, each.is_pointer, each.is_input))
    return tuple(slots)


def join_slots(a: Sequence[Slot], b: Sequence[Slot]) -> tuple[Slot, ...]:
    """Return the arguments that both kernels take; a pointer that is const in either kernel is an input.

    Raises UsageError: when the arguments differ in number or element size, or a pointer meets a scalar.
    """
    if [(each.is_pointer, each.itemsize) for each in a] != [(each.is_pointer, each.itemsize) for each in b]:
        lists = [", ".join(f"{each.name}: {each.kind}{'*' * each.is_pointer}" for each in slots) for slots in (a, b)]
        raise UsageError(f"expected kernels that take the same arguments, found ({lists[0]}) and ({lists[1]}); use --no-time")
    joined = zip(a, b, strict=True)
    return tuple(replace(one, is_input=one.is_input or other.is_input, other_name=other.name) for one, other in joined)


def plan_sizes(
    slots: Sequence[Slot], given: Mapping[str, int], elements_count: int, *, is_plane: bool, extra_count: int = 0
) -> SizePlan:
    """Choose sizes for buffers of about ``elements_count`` elements; ``extra_count`` avoids multiples of a block size.

    A kernel that reads ``threadIdx.y``, or takes two sizes, works on a plane.
    Raises UsageError: for a whole number that is not a size and has no value.
    """
    known = {}
    for slot in (each for each in slots if not each.is_pointer and not each.is_float):
        value = given.get(slot.name, given.get(slot.other_name))
        if value is not None:
            known[slot.name] = value
        elif not slot.is_size:
            raise UsageError(
                f"{slot.name or 'an argument'}: expected a value for this whole number, found none; "
                f"give it as --shape {slot.name or 'NAME'}=1"
            )
    names = [slot.name for slot in slots if slot.is_size and not _LEADING.fullmatch(slot.name)]
    sizes = {name: known[name] for name in names if name in known}
    is_row_wise = not is_plane and len(names) == 1 and names[0].lower() in ROW_LENGTHS
    has_two = is_plane or len(names) > 1
    side = elements_count // max(sizes.values()) if sizes else math.isqrt(elements_count)
    wanted = ROW_LENGTH - _STEP * bool(extra_count) if is_row_wise else side if has_two else elements_count
    rounded = max(_STEP, wanted // _STEP * _STEP) + extra_count
    sizes |= {name: rounded for name in names if name not in sizes}
    if is_row_wise:
        row = sizes[names[0]]
        volume = -(-elements_count // row) * row
    elif not sizes:
        volume = max(_STEP, elements_count // _STEP * _STEP) + extra_count
    else:
        largest = sorted(sizes.values(), reverse=True)
        volume = largest[0] * (largest[1] if len(largest) > 1 else largest[0]) if has_two else largest[0]
    longest = max(sizes.values(), default=1)
    row_length = next((size for name, size in sizes.items() if name.lower() in (*ROW_LENGTHS, "n")), longest)
    leading = {slot.name: known.get(slot.name, row_length) for slot in slots if slot.is_size and slot.name not in sizes}
    return SizePlan({**known, **sizes, **leading}, volume)


def read_size(value: str, text: str) -> int:
    """Read a size such as 1M; ``text`` is the whole --shape.

    Raises UsageError: for a size that is invalid or too large.
    """
    scale = _SCALES.get(value[-1:].lower(), 1)
    digits = value if scale == 1 else value[:-1]
    size = int(digits) * scale if digits.isdecimal() and len(digits) <= _SIZE_DIGITS else 0
    if not 0 < size <= _MOST_SIZE:
        raise UsageError(f"--shape: expected a size such as n=1M, from 1 to {_MOST_SIZE}, found {found_words(text)}")
    return size


def check_sizes(kernels: Iterable[Sequence[Parameter]], sizes: Mapping[str, int]) -> None:
    """Raise UsageError if a size names no whole-number parameter of these kernels or exceeds the parameter's type."""
    known = [
        (each.name or f"argument{number + 1}", each)
        for parameters in kernels
        for number, each in enumerate(parameters)
        if not each.is_pointer and not re.search(r"float|double|half|bfloat", each.type)
    ]
    for name, size in sizes.items():
        found = [each for own, each in known if own == name]
        if not found:
            names = ", ".join(dict.fromkeys(own for own, _ in known)) or "none"
            raise UsageError(f"--shape: expected a whole number that a kernel takes ({names}), found {name!r}")
        largest = min(2 ** (8 * (each.bytes_count or 8) - (not each.type.startswith("u"))) - 1 for each in found)
        if size > largest:
            raise UsageError(f"--shape: {name}: expected at most {largest}, the largest value of its type, found {size}")


def scalar_values(
    slots: Sequence[Slot], plan: SizePlan, given: Mapping[str, float], rng: np.random.Generator
) -> dict[str, float]:
    """Return each scalar argument's value: as given, from the plan, or random (1e-5 for an epsilon)."""
    values: dict[str, float] = {}
    for slot in (each for each in slots if not each.is_pointer):
        drawn = 1e-5 if slot.name.lower().startswith("eps") else round(float(rng.uniform(0.5, 1.5)), 3)
        values[slot.name] = given.get(slot.name, plan.sizes.get(slot.name, drawn) if not slot.is_float else drawn)
    return values


def pack(slot: Slot, value: float) -> bytes:
    """Return a scalar's bytes.

    Raises UsageError: for a whole number beyond the scalar's type.
    """
    try:
        if slot.kind == "bf16":
            return np.array(value, "f4").tobytes()[2:]
        return np.array(value if slot.is_float else int(value), slot.kind).tobytes()
    except OverflowError:
        raise UsageError(f"{slot.name}: expected a value that its type holds, found {value:g}") from None
