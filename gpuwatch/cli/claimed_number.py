"""Facts for the judge: the number that untrusted code claims, and the work of a call as the operator states it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from annotate.errors import AnnotateError
from gpuwatch.cli import options
from gpuwatch.config.quantities import QuantityError, duration_ns
from gpuwatch.errors import UsageError
from gpuwatch.results.file_bytes import read_bytes
from gpuwatch.wire.messages import FactValue

CLAIM_BYTES = 1 << 20
_F = TypeVar("_F", bound=Callable[..., Any])
_WORK = {"flops": "call_flops_count", "bytes": "call_bytes", "dtype": "dtype"}
# The judge treats zeros as an unreadable claim.
_UNREADABLE: dict[str, FactValue] = {"claimed_calls_count": 0, "claimed_call_s": 0.0}


@dataclass(frozen=True, slots=True)
class ClaimOptions:
    """The values of --claimed and --work."""

    claimed: str | None
    work: str | None

    def check(self, *, is_untrusted: bool) -> None:
        """Raise UsageError for --claimed or --work without --untrusted."""
        for name, value in (("--claimed", self.claimed), ("--work", self.work)):
            if value is not None and not is_untrusted:
                raise UsageError(f"{name}: expected --untrusted with it, found none")


def claim_options(command: _F) -> _F:
    """Add --claimed and --work as one argument ``claim_options``."""
    command = options.gathered(ClaimOptions, "claim_options")(command)
    for option in (
        work_option,
        click.option(
            "--claimed", metavar="FILE", help="With --untrusted: read calls and call_s from this JSON file, written by COMMAND."
        ),
    ):
        command = option(command)
    return command


def work_option(command: _F) -> _F:
    """Add --work, the work of one call as the operator states it."""
    text = "With --untrusted: give the work of one call, such as flops=1.4e11,dtype=bf16,bytes=1e8."
    return click.option("--work", metavar="NAME=N,…", help=text)(command)


def claimed_facts(calls: int | None, call_time: str | None) -> dict[str, FactValue]:
    """Return the facts that --calls and --call-time claim.  Raises UsageError: for a wrong time, or a time without calls."""
    try:
        call_s = None if call_time is None else duration_ns(call_time) / 1e9
    except QuantityError as error:
        raise UsageError(f"--call-time: {error}") from error
    if call_s is not None and calls is None:
        raise UsageError("--call-time: expected --calls with it, found none")
    if call_s == 0.0:
        raise UsageError("--call-time: expected more than 0 s, found 0 s")
    facts: dict[str, FactValue] = {"claimed_calls_count": calls, "claimed_call_s": call_s}
    return {name: fact for name, fact in facts.items() if fact is not None}


def work_facts(text: str | None) -> dict[str, FactValue]:
    """Return the facts of --work, such as ``flops=1.4e11,dtype=bf16,bytes=1e8``.  Raises UsageError: for other text."""
    facts: dict[str, FactValue] = {}
    for part in text.split(",") if text else []:
        name, _, value = part.partition("=")
        try:
            facts[_WORK[name.strip()]] = value.strip() if name.strip() == "dtype" else _positive(value)
        except (KeyError, ValueError):
            raise UsageError(f"--work: expected flops=COUNT, bytes=COUNT and dtype=NAME, found {part!r}") from None
    return facts


def read_claim(path: str) -> tuple[dict[str, FactValue], str]:
    """Return the claim in a program's file, and the fault of the file, or an empty text."""
    try:
        return _claim(json.loads(read_bytes(Path(path), CLAIM_BYTES))), ""
    except UsageError as error:  # for example a pipe, whose read could block forever
        return _UNREADABLE, str(error)
    except (ValueError, TypeError, KeyError, RecursionError, AnnotateError):
        return (
            _UNREADABLE,
            f'{path}: expected JSON such as {{"calls": 1000, "call_s": 0.000203}}, at most 1 MiB, found other content',
        )


def _claim(data: Any) -> dict[str, FactValue]:
    calls, call_s = data["calls"], data["call_s"]
    if isinstance(calls, bool) or not isinstance(calls, int) or not 1 <= calls < 1 << 53:
        raise ValueError
    return {"claimed_calls_count": calls, "claimed_call_s": _positive(call_s)}


def _positive(value: object) -> float:
    amount = float(str(value)) if not isinstance(value, bool) else 0.0
    if not 0.0 < amount < 1e24:
        raise ValueError
    return amount
