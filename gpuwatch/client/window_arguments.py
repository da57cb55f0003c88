"""Checks of the arguments of ``window()``, before the benchmark runs."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from annotate.claims import Claim
from annotate.errors import AnnotateError
from annotate.user_policy import Policy
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from gpuwatch.utf8 import clean_text, found_words
from gpuwatch.wire.messages import LABEL_LENGTH, NAME_LENGTH


def check_label(label: object) -> str | None:
    """Return the label without characters that UTF-8 cannot hold; None for None.

    Raises UsageError: for another type, for a function decorated without parentheses, and for a long text.
    """
    if callable(label):
        raise UsageError("label: expected text, found a function; as a decorator write @gpuwatch.window()")
    if label is not None and not isinstance(label, str):
        raise UsageError(f"label: expected text, found {found_words(label)}")
    if label is not None and len(label) > LABEL_LENGTH:
        raise UsageError(f"label: expected at most {LABEL_LENGTH} characters, found {len(label)}")
    return None if label is None else clean_text(label)


def check_choices(on_reject: object, settings: object) -> None:
    """Check ``on_reject`` and ``settings``.  Raises UsageError: for an unknown word, and for settings of another type."""
    if on_reject not in ("report", "raise"):
        raise UsageError(f"on_reject: expected 'report' or 'raise', found {found_words(on_reject)}")
    if settings is not None and not isinstance(settings, Settings):
        raise UsageError(f"settings: expected gpuwatch.config.settings.Settings, found {found_words(settings)}")


def check_kind(kind: object) -> str:
    """Return the kind of other work as UTF-8.  Raises UsageError: for another type, and for an empty or long word."""
    if not isinstance(kind, str) or not 0 < len(kind) <= NAME_LENGTH:
        raise UsageError(f"other_work: expected a word of at most {NAME_LENGTH} characters, found {found_words(kind)}")
    return clean_text(kind)


def check_step(step: object) -> Callable[[], object] | None:
    """Return the step of a warm-up, or None.  Raises UsageError: for other values, and for coroutines and generators."""
    if step is not None and not callable(step):
        raise UsageError(f"warm_up: expected a function that runs one step, found {found_words(step)}")
    if inspect.iscoroutinefunction(step) or inspect.isgeneratorfunction(step):
        raise UsageError("warm_up: expected a function that runs one step, found a coroutine function or generator function")
    return step


def check_policy(
    claim: object,
    policy: object,
    tolerance: object = None,
    precision: object = None,
    reference_clock: object = None,
    *,
    accept: object = (),
    limits: object = None,
) -> Policy:
    """Return the given policy, or a new one of claim, accepted hazards and limits, with the given thresholds and reference clock.

    Raises UsageError: for wrong types and amounts, an unknown claim, rule or limit, and arguments that contradict the policy.
    """
    if not isinstance(claim, str):
        raise UsageError(f"claim: expected text, found {found_words(claim)}")
    if policy is not None and not isinstance(policy, Policy):
        raise UsageError(f"policy: expected a gpuwatch.Policy, found {found_words(policy)}")
    if policy is not None and (accept or limits):
        raise UsageError(
            "policy: expected no accept or limits with a policy, found both; put accept and limits into the policy"
        )
    try:
        chosen = _policy_of(claim, accept, limits) if policy is None else policy
    except AnnotateError as error:
        raise UsageError(str(error)) from error
    if claim not in (Claim.SUSTAINED, chosen.claim):
        raise UsageError(f"claim: {found_words(claim)} contradicts the policy's {chosen.claim.value!r}; give only one")
    amounts = {"tolerance_ratio": tolerance, "precision_ratio": precision, "reference_clock_mhz": reference_clock}
    for name, amount in amounts.items():
        given: dict[str, Any] = {} if amount is None else {name: amount}
        try:
            chosen = replace(chosen, **given)
        except AnnotateError as error:
            raise UsageError(str(error).replace(name, name.rpartition("_")[0], 1)) from error
    return chosen


def _policy_of(claim: str, accept: Any, limits: Any) -> Policy:  # of any type: the policy checks them
    names: Any = (accept,) if isinstance(accept, str) else accept
    return Policy(claim=Claim.of(claim), accept=names, limits={} if limits is None else limits)


def list_gpus(gpus: object) -> list[str] | None:
    """Return the GPUs' names as a list; None for None.

    Raises UsageError: for other types, such as a number.
    """
    if gpus is None or isinstance(gpus, str):
        return None if gpus is None else [gpus]
    found: list[str] = []
    for name in gpus if isinstance(gpus, list | tuple) else [gpus]:
        if not isinstance(name, str):
            raise UsageError(
                f"gpus: expected texts, found {found_words(name)}; write UUIDs, or gpus=['0'] for the driver's index, which can "
                "differ from CUDA's"
            )
        found.append(name)
    return found
