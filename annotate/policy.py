"""The user's policy for a verdict: the claim, the accepted hazards, the overridden limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from annotate.claims import Claim
from annotate.errors import InvalidValueError, UnknownNameError


@dataclass(frozen=True, slots=True)
class Policy:
    """Claim, accepted hazards by rule name, and limits by rule name.

    Refuses unknown names and wrong values: raises UnknownNameError, InvalidValueError.
    """

    claim: Claim = Claim.SUSTAINED
    accept: frozenset[str] = frozenset()
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "claim", Claim.of(_text("claim", self.claim)))
        if isinstance(self.accept, str) or not isinstance(self.accept, Iterable):
            raise InvalidValueError(f"accept: expected a list of rule names, found {self.accept!r}")
        object.__setattr__(self, "accept", frozenset(_text("accept", name) for name in self.accept))
        if not isinstance(self.limits, Mapping):
            raise InvalidValueError(f"limits: expected a table of tables, found {self.limits!r}")
        if not self.accept and not self.limits:
            return
        # Imported here: the rules need numpy, and most windows are opened with the default policy.
        from annotate.rules import RULES

        known = {rule.name: rule for rule in RULES}
        for name in (*self.accept, *self.limits):
            if name not in known:
                raise UnknownNameError("rule", name, known)
        checked: dict[str, dict[str, float]] = {}
        for name, limits in self.limits.items():
            if not isinstance(limits, Mapping):
                raise InvalidValueError(f"limits of {name}: expected a table of numbers, found {limits!r}")
            checked[name] = known[name].checked_limits(limits)
        object.__setattr__(self, "limits", checked)

    def to_dict(self) -> dict[str, Any]:
        return {
            "claim": self.claim.value,
            "accept": sorted(self.accept),
            "limits": {name: dict(limits) for name, limits in self.limits.items()},
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Policy:
        """Raises UnknownNameError, InvalidValueError."""
        if not isinstance(data, Mapping):
            raise InvalidValueError(f"policy: expected a table, found {data!r}")
        known = ("claim", "accept", "limits")
        for name in data:
            if name not in known:
                raise UnknownNameError("policy key", str(name), known)
        return Policy(
            claim=data.get("claim", Claim.SUSTAINED), accept=data.get("accept", frozenset()), limits=data.get("limits", {})
        )


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValueError(f"{what}: expected a name, found {value!r}")
    return value
