"""The correctness gate of two kernels: full outputs on several seeds, sizes and fills, before any time."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

import numpy as np

from gpuwatch.diff.fills import INPUT_FILLS, decode
from gpuwatch.diff.kernel_arguments import SizePlan, Slot
from gpuwatch.diff.kernel_device import Bytes, KernelFault, Launch
from gpuwatch.diff.trial import Enqueue, Trial
from gpuwatch.errors import UsageError
from gpuwatch.measuring.reference import Match, match_results

SEEDS_COUNT = 3
SPECIAL_FILLS = ("zeros", *INPUT_FILLS)
_BF16_LIMIT = 2e-2  # as reference.py has it for torch's bfloat16
_SHIFTED_RATIO = 0.9  # of the elements: each block of a scan begins anew
_OTHER_BLOCK = "a kernel for blocks of another size; name it with --launch 'block=X'"
_HINT_COUNT = 1 << 20  # elements that hints look at
_SUMS_RATIO = 1e-3  # of the differences' size, by which their sum may miss zero

MakeTrial = Callable[[SizePlan, str, int], AbstractContextManager[Trial]]  # of sizes, fill and seed
Doing = Callable[[str], None]  # is told what runs next


def check_pair(
    sides: tuple[Enqueue, Enqueue], plans: Sequence[SizePlan], make: MakeTrial, rtol: float | None, doing: Doing
) -> str:
    """Return the reason why the kernels compute something else; empty where their results agree."""
    smallest = min(plans, key=lambda plan: plan.elements_count)
    rounds = [(plans[seed % len(plans)], "randn", seed) for seed in range(max(SEEDS_COUNT, len(plans)))]
    rounds += [(smallest, fill, 0) for fill in SPECIAL_FILLS]
    for plan, fill, seed in rounds:
        words = f"{plan}, seed {seed}" if fill == "randn" else f"{plan}, inputs {_words(fill)}"
        with make(plan, fill, seed) as trial:
            is_repeated = plan is smallest and fill == "randn"
            why = _check_round(sides, trial, rtol, partial(_tell, doing, words), is_repeated=is_repeated)
        if why:
            return f"{why} ({words})"
    return ""


def match_outputs(slot: Slot, a: Bytes, b: Bytes, rtol: float | None) -> Match:
    """Compare one output of both sides; equal bytes are equal, whatever they mean."""
    if np.array_equal(a, b):
        return Match(0.0, rtol or 0.0)
    limit = _BF16_LIMIT if rtol is None and slot.kind == "bf16" else rtol
    one, other = decode(slot, a), decode(slot, b)
    narrow = match_results(other[:1], one[:1], limit).limit_ratio
    with np.errstate(all="ignore"):  # where each value is near its own, a mean of all need not be known: half the time
        if slot.is_float and bool((np.abs(other - one) <= narrow * np.abs(one)).all()):
            return Match(0.0, narrow)
    return match_results(other, one, limit)


def find_hint(slot: Slot, a: Bytes, b: Bytes) -> str:
    """Return a hint where results are near each other: one place later as of two scans, or in sum as of two reductions."""
    one, other = (decode(slot, each)[:_HINT_COUNT] for each in (a, b))
    with np.errstate(all="ignore"):
        gaps = other.astype("f8") - one
        if np.count_nonzero(gaps) > 1 and abs(gaps.sum()) <= _SUMS_RATIO * np.abs(gaps).sum():
            return "; the sums of both agree, as where each block adds up other elements: --no-check times them all the same"
        for first, second, words in ((one, other, "B is A"), (other, one, "A is B")):
            equal = np.isclose(second[1:], first[:-1], rtol=1e-3, equal_nan=True)
            moved = first[1:] != first[:-1]  # a constant is equal to itself at any place
            if moved.any() and np.mean(equal[moved]) > _SHIFTED_RATIO:
                return f"; equal when shifted by one: {words} one place later, as an exclusive scan is an inclusive one"
    return ""


def _check_round(sides: tuple[Enqueue, Enqueue], trial: Trial, rtol: float | None, doing: Doing, *, is_repeated: bool) -> str:
    name = "A"
    try:
        launches, results = [], []
        for name, side in zip("AB", sides, strict=True):
            doing(name)
            launches.append(side(trial))
            results.append(trial.run(launches[-1]))
        why = _compare(trial, results[0], results[1], rtol)
        if why or is_repeated:  # a race may look like another result
            for name, launch, expected in zip("AB", launches, results, strict=True):
                why = _repeat(name, trial, launch, expected, rtol) or why
    except KernelFault as fault:
        return f"{name} {fault}"
    return why


def _compare(trial: Trial, a: Sequence[Bytes], b: Sequence[Bytes], rtol: float | None) -> str:
    for slot, one, other in zip(trial.outputs, a, b, strict=True):
        found = match_outputs(slot, one, other, rtol)
        if not found.holds:
            error = f"{found.error_ratio:.2g}, {found.limit_ratio:.2g} allowed"
            return f"B computes something else: {slot.name} differs by up to {error}{find_hint(slot, one, other)}"
    return ""


def _repeat(name: str, trial: Trial, launch: Launch, expected: Sequence[Bytes], rtol: float | None) -> str:
    """Run the same launch again from the same start."""
    for slot, first, again in zip(trial.outputs, expected, trial.run(launch), strict=True):
        found = match_outputs(slot, first, again, rtol)
        if not found.holds:
            error = f"{found.error_ratio:.2g}, {found.limit_ratio:.2g} allowed"
            return (
                f"{name} is not deterministic: {slot.name} differs between two runs by up to {error}: a race, or {_OTHER_BLOCK}"
            )
    return ""


def _tell(doing: Doing, words: str, side: str) -> None:
    doing(f"{side}: check at {words}")


def _words(fill: str) -> str:
    return {"nan": "with NaN", "large": "of large numbers", "zeros": "of zeros"}[fill]


def check_names(wanted: Sequence[str], slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """Return the slots with the named ones as the only outputs.  Raises UsageError: for a name that is no buffer."""
    names = [slot.name for slot in slots if slot.is_pointer]
    for each in wanted:
        if each not in names:
            raise UsageError(f"--out: expected the name of a buffer, found {each!r}; there are {', '.join(names) or 'none'}")
    return tuple(replace(slot, is_input=slot.is_pointer and slot.name not in wanted) if wanted else slot for slot in slots)
