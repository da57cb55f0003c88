"""Correctness check of two kernels before they are timed: full outputs for several seeds, sizes and fills."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np

from gpuwatch.diff.fills import decode
from gpuwatch.diff.kernel_arguments import SizePlan, Slot
from gpuwatch.diff.kernel_device import Bytes, KernelFault
from gpuwatch.diff.trial import Enqueue, Trial
from gpuwatch.errors import UsageError
from gpuwatch.measuring.reference import Match, match_results

SEEDS_COUNT = 3
SPECIAL_FILLS = {"zeros": "of zeros", "nan": "with NaN", "large": "of large numbers"}
_BF16_LIMIT = 2e-2  # equal to reference.py's limit for torch's bfloat16
_SHIFTED_RATIO = 0.9  # least share of equal elements; not all, because each block of a scan starts anew
_OTHER_BLOCK = "a kernel for blocks of another size; name it with --launch 'block=X'"
_HINT_COUNT = 1 << 20  # first elements of an output that a hint compares
_SUMS_RATIO = 1e-3  # sums agree if |sum of differences| is at most this share of the sum of |differences|

MakeTrial = Callable[[SizePlan, str, int], AbstractContextManager[Trial]]  # from sizes, fill and seed
Doing = Callable[[str], None]  # receives a description of the next step


def check_pair(
    sides: tuple[Enqueue, Enqueue], plans: Sequence[SizePlan], make: MakeTrial, rtol: float | None, doing: Doing
) -> str:
    """Return the reason why the check fails (other results, a fault, runs that differ); empty if the kernels agree.

    Raises KernelFault: when there is too little memory for a trial.
    Raises UsageError: when a side cannot be called on a trial.
    """
    smallest = min(plans, key=lambda plan: plan.elements_count)
    rounds = [(plans[seed % len(plans)], "randn", seed, f"seed {seed}") for seed in range(max(SEEDS_COUNT, len(plans)))]
    rounds += [(smallest, fill, 0, f"inputs {condition}") for fill, condition in SPECIAL_FILLS.items()]
    for plan, fill, seed, condition in rounds:
        words = f"{plan}, {condition}"
        with make(plan, fill, seed) as trial:
            why = _check_round(sides, trial, rtol, words, doing, is_repeated=plan is smallest and fill == "randn")
        if why:
            return f"{why} ({words})"
    return ""


def match_outputs(slot: Slot, a: Bytes, b: Bytes, rtol: float | None) -> Match:
    """Compare one output of both sides.  Equal bytes match, even as NaN."""
    if np.array_equal(a, b):
        return Match(0.0, rtol or 0.0)
    limit = _BF16_LIMIT if rtol is None and slot.kind == "bf16" else rtol
    one, other = decode(slot, a), decode(slot, b)
    narrow = match_results(other[:1], one[:1], limit).limit_ratio
    with np.errstate(all="ignore"):  # a fast path without the mean over all values, for values within the limit
        if slot.is_float and bool((np.abs(other - one) <= narrow * np.abs(one)).all()):
            return Match(0.0, narrow)
    return match_results(other, one, limit)


def find_hint(slot: Slot, a: Bytes, b: Bytes) -> str:
    """Return a hint if results are equal in sum (reductions) or after a shift by one (scans); else empty."""
    one, other = (decode(slot, each)[:_HINT_COUNT] for each in (a, b))
    with np.errstate(all="ignore"):
        gaps = other.astype("f8") - one
        if np.count_nonzero(gaps) > 1 and abs(gaps.sum()) <= _SUMS_RATIO * np.abs(gaps).sum():
            return "; the sums of both agree, as when each block adds up other elements: --no-check times the pair anyway"
        for first, second, words in ((one, other, "B is A"), (other, one, "A is B")):
            equal = np.isclose(second[1:], first[:-1], rtol=1e-3, equal_nan=True)
            moved = first[1:] != first[:-1]  # a constant is equal at any shift
            if moved.any() and np.mean(equal[moved]) > _SHIFTED_RATIO:
                return f"; equal when shifted by one: {words} one place later, like an exclusive and an inclusive scan"
    return ""


def _check_round(
    sides: tuple[Enqueue, Enqueue], trial: Trial, rtol: float | None, words: str, doing: Doing, *, is_repeated: bool
) -> str:
    name = "A"
    try:
        launches, results = [], []
        for name, side in zip("AB", sides, strict=True):
            doing(f"{name}: check at {words}")
            launches.append(side(trial))
            results.append(trial.run(launches[-1]))
        found = _differing(trial, results[0], results[1], rtol)
        why = f"B computes something else: {found[0]} differs by up to {found[1]}{found[2]}" if found else ""
        if why or is_repeated:  # a race may look like a wrong result
            for name, launch, expected in zip("AB", launches, results, strict=True):
                if found := _differing(trial, expected, trial.run(launch), rtol):
                    where = f"{found[0]} differs between two runs by up to {found[1]}"
                    why = f"{name} is not deterministic: {where}: a race, or {_OTHER_BLOCK}"
    except KernelFault as fault:
        return f"{name} {fault}"
    return why


def _differing(trial: Trial, a: Sequence[Bytes], b: Sequence[Bytes], rtol: float | None) -> tuple[str, str, str] | None:
    """Return name, error and hint of the first output that differs; None if all match."""
    for slot, one, other in zip(trial.outputs, a, b, strict=True):
        found = match_outputs(slot, one, other, rtol)
        if not found.holds:
            return slot.name, f"{found.error_ratio:.2g}, {found.limit_ratio:.2g} allowed", find_hint(slot, one, other)
    return None


def check_names(wanted: Sequence[str], slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """Return the slots; if outputs are named, all other buffers are inputs.  Raises UsageError: for a name without a buffer."""
    names = [slot.name for slot in slots if slot.is_pointer]
    for each in wanted:
        if each not in names:
            raise UsageError(f"--out: expected the name of a buffer, found {each!r}; there are {', '.join(names) or 'none'}")
    return tuple(replace(slot, is_input=slot.is_pointer and slot.name not in wanted) if wanted else slot for slot in slots)
