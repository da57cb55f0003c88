"""Rules: functions from evidence to an answer, with the limits in the signature and the rule's page in the docstring."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, TypeAlias, TypeVar, get_type_hints

from annotate.answer import Answer, Clear, Found, Severity, Unobserved
from annotate.case import Case
from annotate.claims import Claim
from annotate.declared import FACTS
from annotate.errors import InvalidValueError, UnknownNameError
from annotate.evidence import Evidence
from annotate.ranges import Range
from annotate.verdict import OverriddenLimit

# The names that a module of rules imports.
__all__ = ["Answer", "Basis", "Check", "Clear", "Found", "Limit", "Rule", "RuleKind", "Severity", "Unobserved", "rule"]


class RuleKind(StrEnum):
    """The effect of a hazard on a verdict.

    A bias rule gives bounds on numbers, from which the judge derives the severity.  An integrity rule finds that the number
    is not the claimed one, and sets the severity.  A label never changes a status.
    """

    BIAS = "bias"
    INTEGRITY = "integrity"
    LABEL = "label"


class Basis(StrEnum):
    """The origin of a rule's evidence."""

    TELEMETRY = "telemetry"
    HOST = "host"
    DECLARED = "told"  # the stored value in verdicts
    TIMINGS = "timings"
    BASELINE = "baseline"


_Note = TypeVar("_Note")
Check: TypeAlias = Callable[..., Answer]  # (case, *, limits…) or (evidence, claim, *, limits…)


_NEEDS = {
    "process_list": "the process list",
    "dense_power": "the driver's dense power record",
    "timings": "the time of each iteration",
    "timings.sm_clock_mhz": "the true clock of each iteration",
}


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a rule: a keyword argument with its default, the reason for the default, and the allowed range."""

    name: str
    default: float
    why: str
    range: Range


@dataclass(frozen=True, slots=True)
class Rule:
    """One hazard: its name, the evidence it needs, its sentence and remedy, and the function that decides."""

    name: str
    family: str
    needs: tuple[str, ...]
    kind: RuleKind
    basis: Basis
    says: str
    remedy: str
    check: Check

    @property
    def limits(self) -> Mapping[str, Limit]:
        """Return the limits that a policy may override, each declared as ``name: Annotated[Share, "why"] = default``.

        The limits are the keywords of the check or, if the check takes ``limits``, the fields of that record.
        """
        source = _record(self.check) or self.check
        hints = get_type_hints(source, include_extras=True)
        return {
            name: Limit(name, parameter.default, _note(hints[name], str, ""), _note(hints[name], Range, Range()))
            for name, parameter in inspect.signature(source).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }

    def ask(self, evidence: Evidence, claim: Claim, limits: Mapping[str, float] | None = None) -> Answer:
        """Return the rule's answer; Unobserved, without a call of the check, if a needed item was never observed."""
        return self.ask_about(Case(evidence, claim), limits)

    def ask_about(self, case: Case, limits: Mapping[str, float] | None = None) -> Answer:
        """Return the rule's answer; series that other rules computed for this case are reused."""
        for need in self.needs:
            if not case.evidence.observes(need):
                return Unobserved(_missing(need, case.evidence.absence))
        record = _record(self.check)
        given = {"limits": record(**(limits or {}))} if record is not None else (limits or {})
        if _takes_case(self.check):
            return self.check(case, **given)
        return self.check(case.evidence, case.claim, **given)

    def overridden(self, limits: Mapping[str, float]) -> dict[str, OverriddenLimit]:
        """Return the given limits that differ from the rule's defaults."""
        known = self.limits if limits else {}
        return {
            name: OverriddenLimit(value, known[name].default)
            for name, value in limits.items()
            if name in known and value != known[name].default
        }

    def checked_limits(self, limits: Mapping[str, object]) -> dict[str, float]:
        """Return the limits as floats.

        Raises UnknownNameError: when the rule has no limit of a name.
        Raises InvalidValueError: when a limit is not a number in its range.
        """
        known = self.limits
        out: dict[str, float] = {}
        for name, value in limits.items():
            if name not in known:
                raise UnknownNameError(f"limit of {self.name}", name, known)
            if not known[name].range.holds(value):
                raise InvalidValueError(
                    f"limit {self.name}.{name}: expected a number from {known[name].range}, found {value!r}"
                )
            out[name] = float(value)
        return out


@cache
def _record(check: Check) -> type | None:
    found = get_type_hints(check).get("limits")
    return found if isinstance(found, type) else None


@cache
def _takes_case(check: Check) -> bool:
    return next(iter(inspect.signature(check).parameters)) == "case"


def _missing(need: str, absence: str | None) -> str:
    root, _, name = need.partition(".")
    if root == "declared":
        return f"nobody declared {FACTS[name]}"
    if root == "baseline":
        return "the window was not compared with another one"
    return absence or f"{_NEEDS.get(need, need)} was not observed"


def _note(hint: Any, kind: type[_Note], default: _Note) -> _Note:  # an Annotated alias has no narrower type
    return next((note for note in getattr(hint, "__metadata__", ()) if isinstance(note, kind)), default)


def rule(
    name: str, *, kind: RuleKind, needs: tuple[str, ...] = (), basis: Basis = Basis.TELEMETRY, says: str, remedy: str
) -> Callable[[Check], Rule]:
    """Make a rule from a function ``(case, *, limit: Annotated[Share, "why"] = default, …) -> Answer``.

    A function can take ``(evidence, claim, *, …)`` instead.  A function with many limits takes one argument ``limits``, a
    frozen dataclass of such keywords.  The judge fills the templates ``says`` and ``remedy`` with the facts of a ``Found``.
    The family is the name of the function's module.
    """

    def make(check: Check) -> Rule:
        return Rule(name, check.__module__.rpartition(".")[2], needs, kind, basis, says, remedy, check)

    return make
