"""Buffers of one trial of a pair, between guard zones, reset before each run."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuwatch.diff.fills import INPUT_FILLS, NAMES, encode, make_values
from gpuwatch.diff.kernel_arguments import ROW_LENGTHS, SizePlan, Slot, pack, scalar_values
from gpuwatch.diff.kernel_device import Bytes, KernelDevice, KernelFault, Launch
from gpuwatch.errors import UsageError

GUARD_BYTES = 64 << 10  # on each side of a buffer; larger than one row of most shapes
# Guard bytes: NaN in each floating-point type around inputs, a number around outputs; equal bytes would hide a copied guard.
_INPUT_GUARD, _OUTPUT_GUARD = 0xFF, 0x5C
_POISON = 0xA5  # a small number in each floating-point type, and an unlikely result

_POISONED = np.full(8, _POISON, np.uint8)

Touched = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TrialTerms:
    """The fill of a trial's buffers, and the user's values by argument name."""

    fill: str = "randn"
    seed: int = 0
    scalars: Mapping[str, float] = field(default_factory=dict)
    arrays: Mapping[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)  # pointer names, each with the pointer that owns the buffer


class Trial:
    """Buffers for one plan of sizes; a context manager, which frees the buffers."""

    def __init__(self, device: KernelDevice, slots: Sequence[Slot], plan: SizePlan, terms: TrialTerms) -> None:
        """Allocate the buffers, and copy the initial values to the GPU.

        Raises KernelFault: when the GPU or the host has too little memory.
        Raises UsageError: for a file of values that is unreadable or has no numbers.
        """
        rng = np.random.default_rng(terms.seed)
        self.device, self.slots, self.plan = device, slots, plan
        self.scalars = scalar_values(slots, plan, terms.scalars, rng)
        self.aliases = terms.aliases
        self._shapes = {name: array.shape for name, array in terms.arrays.items()}
        self._pointers = [each for each in slots if each.is_pointer and each.name not in terms.aliases]
        made_bytes = plan.elements_count * sum(each.itemsize for each in self._pointers if each.name not in terms.arrays)
        if made_bytes > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
            raise KernelFault(
                f"this machine has too little memory for buffers of {made_bytes >> 20} MiB; use a smaller --shape"
            )
        self._initial = {slot.name: self._make(slot, terms, rng) for slot in self._pointers}
        self.places: dict[str, int] = {}
        self._copies: dict[str, int] = {}  # initial values, kept on the GPU because copies from the host are slow
        try:
            for name, values in self._initial.items():
                self.places[name] = device.allocate(values.nbytes + 2 * GUARD_BYTES) + GUARD_BYTES
                self._copies[name] = device.allocate(values.nbytes)
                device.write(self._copies[name], values)
            device.synchronize()
        except KernelFault as fault:
            self.close()
            need = sum(each.nbytes for each in self._initial.values()) >> 20
            raise KernelFault(
                f"the GPU has too little memory for buffers of {need} MiB ({fault}); use a smaller --shape"
            ) from None
        self.places |= {name: self.places[target] for name, target in terms.aliases.items()}

    def __enter__(self) -> "Trial":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for address in {each - GUARD_BYTES for each in self.places.values()}.union(self._copies.values()):
            self.device.free(address)
        self.places, self._copies = {}, {}

    def arguments(self) -> list[bytes]:
        """Return the bytes of each argument for a launch.

        Raises UsageError: for a whole number beyond its type.
        """
        return [
            self.places[slot.name].to_bytes(8, "little") if slot.is_pointer else pack(slot, self.scalars[slot.name])
            for slot in self.slots
        ]

    @property
    def outputs(self) -> list[Slot]:
        return [slot for slot in self._pointers if not slot.is_input]

    def count_of(self, name: str) -> int:
        """Return the number of elements in a pointer's buffer."""
        own = self.aliases.get(name, name)
        return self._initial[own].nbytes // next(slot.itemsize for slot in self._pointers if slot.name == own)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Return a buffer's shape: that of the user's array, else rows if a size is a row length, else flat."""
        if name in self._shapes:
            return self._shapes[name]
        count = self.count_of(name)
        row = next((size for each, size in self.plan.sizes.items() if each.lower() in ROW_LENGTHS), 0)
        return (count // row, row) if row and count % row == 0 else (count,)

    def traffic(self, launch: Launch) -> tuple[int, int]:
        """Return the bytes that a launch reads, each counted once, and the bytes that it writes.

        An input counts whole, or up to one of the sizes if the rest does not affect the outputs.
        An output's element counts as read if the result depends on the element's old value.
        """
        read, written = 0, 0
        starts = self.run(launch), self.run(launch, poisoned=True)
        for slot, touched, one, other in zip(self.outputs, self._changed(*starts), *starts, strict=True):
            written += int(touched.sum()) * slot.itemsize
            read += int(((_words(one, slot) != _words(other, slot)) & touched).sum()) * slot.itemsize
        read += sum(self._read_bytes(slot, launch, starts[0]) for slot in self._pointers if slot.is_input)
        return read, written

    def _read_bytes(self, slot: Slot, launch: Launch, expected: Sequence[Bytes]) -> int:
        """Return the bytes of an input that affect the outputs.  Integer inputs may be indices, so such inputs count whole."""
        whole = self._initial[slot.name].nbytes
        for used in sorted({size * slot.itemsize for size in self.plan.sizes.values()} if slot.is_float else ()):
            if used < whole:
                self.reset()
                self.device.fill(self.places[slot.name] + used, _POISON, whole - used)
                if all(map(np.array_equal, self._finish(launch), expected)):
                    return used
        return whole

    def reset(self, *, poisoned: bool = False) -> None:
        """Restore buffers and guard zones to the initial values; ``poisoned`` fills outputs with one byte value."""
        for slot in self._pointers:
            place, bytes_count = self.places[slot.name], self._initial[slot.name].nbytes
            self.device.fill(place - GUARD_BYTES, _guard(slot), bytes_count + 2 * GUARD_BYTES)
            if poisoned and not slot.is_input:
                self.device.fill(place, _POISON, bytes_count)
            else:
                self.device.copy(place, self._copies[slot.name], bytes_count)
        self.device.synchronize()

    def run(self, launch: Launch, *, poisoned: bool = False) -> list[Bytes]:
        """Reset, run one launch and return the outputs.

        Raises KernelFault: when the launch fails or changes a guard zone.
        """
        self.reset(poisoned=poisoned)
        return self._finish(launch)

    def _finish(self, launch: Launch) -> list[Bytes]:
        launch()
        self.device.synchronize()
        self._check_guards()
        return [self.device.read(self.places[slot.name], self._initial[slot.name].nbytes) for slot in self.outputs]

    def touched(self, launch: Launch) -> list[Touched]:
        """Return masks of the elements that a launch changes in at least one of two runs with different initial values."""
        return self._changed(self.run(launch), self.run(launch, poisoned=True))

    def _changed(self, after: Sequence[Bytes], after_poison: Sequence[Bytes]) -> list[Touched]:
        return [
            (_words(one, slot) != _words(self._initial[slot.name], slot)) | (_words(other, slot) != _words(_POISONED, slot)[0])
            for slot, one, other in zip(self.outputs, after, after_poison, strict=True)
        ]

    def _make(self, slot: Slot, terms: TrialTerms, rng: np.random.Generator) -> Bytes:
        if slot.name in terms.arrays:
            return encode(slot, terms.arrays[slot.name])
        # Outputs get the fills nan and large only if the kernel has no inputs.
        is_special = terms.fill in INPUT_FILLS and not slot.is_input and any(each.is_input for each in self.slots)
        return make_values(slot, self.plan.elements_count, NAMES[0] if is_special else terms.fill, rng)

    def _check_guards(self) -> None:
        for slot in self._pointers:
            place, values = self.places[slot.name], self._initial[slot.name]
            for at, where in ((place - GUARD_BYTES, "before"), (place + values.nbytes, "after")):
                hurt = np.flatnonzero(self.device.read(at, GUARD_BYTES) != _guard(slot))
                if len(hurt):
                    nearest = GUARD_BYTES - int(hurt[-1]) if where == "before" else int(hurt[0])
                    count = values.nbytes // slot.itemsize
                    raise KernelFault(
                        f"writes outside of {slot.name}: {len(hurt)} bytes {where} its {count} elements, the nearest at byte "
                        f"{nearest}"
                    )


def _words(data: Bytes, slot: Slot) -> npt.NDArray[Any]:
    """Return the elements as unsigned integers, which compare bit by bit."""
    return data.view(f"u{slot.itemsize}")


def _guard(slot: Slot) -> int:
    return _INPUT_GUARD if slot.is_input else _OUTPUT_GUARD


def check_aliases(slots: Sequence[Slot], aliases: Mapping[str, str]) -> None:
    """Check the shared buffers of --call.

    Raises UsageError: for a name that is not a buffer, and for a shared buffer that itself shares another.
    """
    names = [slot.name for slot in slots if slot.is_pointer]
    for name, target in aliases.items():
        if target not in names or target in aliases or name not in names:
            raise UsageError(f"--call: expected the name of a buffer, found {target!r}; there are {', '.join(names)}")


Enqueue = Callable[[Trial], Launch]  # makes one side's launch for a trial
