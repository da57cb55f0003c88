"""The user's policy for a verdict: the claim, accepted hazards, overridden limits and thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from annotate.claims import Claim
from annotate.errors import InvalidValueError, UnknownNameError
from annotate.ranges import CARD_SPREADS, PRECISIONS, TOLERANCE_RATIO, TOLERANCES, Range
from annotate.times.reference_clock import ReferenceClock, checked_clock

_THRESHOLDS = ("tolerance", "precision", "card_spread")


@dataclass(frozen=True, slots=True)
class Policy:
    """A user's policy for verdicts: claim, accepted hazards, limits and thresholds.

    Names of retired rules have no effect, so that an old policy still loads.

    Attributes:
        claim: Claim to judge.
        accept: Names of rules whose hazards are accepted; accepted hazards stay in the verdict.
        limits: Overridden limits, by rule and limit; the name of a limit ends in its unit.
        tolerance_ratio: Ratio by which disturbances may change a number before the window is flagged, from 0.0001 to 0.2.
        precision_ratio: Largest accepted repeatability of a number, a ratio from 0.0001 to 0.5; None for no limit.
        card_spread_ratio: Spread between cards of a model at one clock, a ratio from 0.0001 to 0.3; None for the recorded one.
        reference_clock_mhz: SM clock for the time at one clock, from 100 to 5000 MHz, or a table of such clocks by the driver's
            names of models; None for the recorded one.

    Raises UnknownNameError: when a claim, rule or limit does not exist; the message suggests the nearest, or lists all.
    Raises InvalidValueError: when a value has the wrong type or lies outside its range.

    Example:
        >>> policy = gpuwatch.Policy(accept=frozenset({"dark-time"}), tolerance_ratio=0.02)
        >>> policy.claim.value
        'sustained'
        >>> gpuwatch.Policy(accept=frozenset({"dark-tim"}))
        Traceback (most recent call last):
        annotate.errors.UnknownNameError: unknown rule 'dark-tim'; did you mean 'dark-time'?
    """

    claim: Claim = Claim.SUSTAINED
    accept: frozenset[str] = frozenset()
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    tolerance_ratio: float = TOLERANCE_RATIO
    precision_ratio: float | None = None
    card_spread_ratio: float | None = None
    reference_clock_mhz: ReferenceClock | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "claim", Claim.of(_text("claim", self.claim)))
        object.__setattr__(self, "tolerance_ratio", _share("tolerance_ratio", self.tolerance_ratio, TOLERANCES))
        if self.precision_ratio is not None:
            object.__setattr__(self, "precision_ratio", _share("precision_ratio", self.precision_ratio, PRECISIONS))
        if self.card_spread_ratio is not None:
            object.__setattr__(self, "card_spread_ratio", _share("card_spread_ratio", self.card_spread_ratio, CARD_SPREADS))
        if self.reference_clock_mhz is not None:
            object.__setattr__(self, "reference_clock_mhz", _clock(self.reference_clock_mhz))
        if isinstance(self.accept, str) or not isinstance(self.accept, Iterable):
            raise InvalidValueError(f"accept: expected a list of rule names, found {self.accept!r}")
        object.__setattr__(self, "accept", frozenset(_text("accept", name) for name in self.accept))
        if not isinstance(self.limits, Mapping):
            raise InvalidValueError(f"limits: expected a table of tables, found {self.limits!r}")
        if not self.accept and not self.limits:
            return
        # Imported here: the rules need numpy, and most windows are opened with the default policy.
        from annotate.rules import RETIRED, RETIRED_LIMITS, RULES

        known = {rule.name: rule for rule in RULES}
        for name in (*self.accept, *self.limits):
            if name not in known and name not in RETIRED:
                raise UnknownNameError("rule", name, known)
        checked: dict[str, dict[str, float]] = {}
        for name, limits in self.limits.items():
            if not isinstance(limits, Mapping):
                raise InvalidValueError(f"limits of {name}: expected a table of numbers, found {limits!r}")
            # Policies of earlier versions may name retired rules and limits; these have no effect.
            lasting = {each: value for each, value in limits.items() if each not in RETIRED_LIMITS.get(name, ())}
            if name in known and (lasting or not limits):
                checked[name] = known[name].checked_limits(lasting)
        object.__setattr__(self, "limits", checked)

    def with_threshold(self, name: str, amount: object) -> Policy:
        """Return the policy with another threshold.

        Args:
            name: ``"tolerance"``, ``"precision"`` or ``"card_spread"``.
            amount: New threshold, a ratio.

        Raises UnknownNameError: when the name is none of these.
        Raises InvalidValueError: when the amount is not a ratio in its range.

        Example:
            >>> gpuwatch.Policy().with_threshold("tolerance", 0.02).tolerance_ratio
            0.02
        """
        if name not in _THRESHOLDS:
            raise UnknownNameError("threshold", name, _THRESHOLDS)
        changes: dict[str, Any] = {f"{name}_ratio": amount}
        return replace(self, **changes)

    def or_thresholds(
        self,
        tolerance_ratio: float | None,
        precision_ratio: float | None,
        card_spread_ratio: float | None = None,
        reference_clock_mhz: ReferenceClock | None = None,
    ) -> Policy:
        """Return the policy with these thresholds, and this reference clock, in place of default ones.

        Args:
            tolerance_ratio: Tolerance, a ratio; None or 0 changes nothing.
            precision_ratio: Precision, a ratio; None or 0 changes nothing.
            card_spread_ratio: Spread between cards of a model, a ratio; None or 0 changes nothing.
            reference_clock_mhz: Reference clock in MHz, or a table by model; None changes nothing.

        Raises InvalidValueError: when a threshold lies outside its range.

        Example:
            >>> gpuwatch.Policy(tolerance_ratio=0.02).or_thresholds(0.05, 0.1).tolerance_ratio
            0.02
        """
        return replace(
            self,
            tolerance_ratio=tolerance_ratio
            if tolerance_ratio and self.tolerance_ratio == TOLERANCE_RATIO
            else self.tolerance_ratio,
            precision_ratio=self.precision_ratio or precision_ratio or None,
            card_spread_ratio=self.card_spread_ratio or card_spread_ratio or None,
            reference_clock_mhz=self.reference_clock_mhz or reference_clock_mhz,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data without default thresholds, so that earlier versions can read the data.

        Raises nothing.

        Example:
            >>> gpuwatch.Policy().to_dict()
            {'claim': 'sustained', 'accept': [], 'limits': {}}
        """
        data: dict[str, Any] = {
            "claim": self.claim.value,
            "accept": sorted(self.accept),
            "limits": {name: dict(limits) for name, limits in self.limits.items()},
        }
        if self.tolerance_ratio != TOLERANCE_RATIO:
            data["tolerance_ratio"] = self.tolerance_ratio
        if self.precision_ratio is not None:
            data["precision_ratio"] = self.precision_ratio
        if self.card_spread_ratio is not None:
            data["card_spread_ratio"] = self.card_spread_ratio
        if self.reference_clock_mhz is not None:
            given = self.reference_clock_mhz
            data["reference_clock_mhz"] = dict(given) if isinstance(given, Mapping) else given
        return data

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Policy:
        """Read a policy from the data that ``to_dict`` returned.

        Args:
            data: Plain data by the names of the attributes.

        Returns:
            The policy.

        Raises UnknownNameError: when a key, claim, rule or limit does not exist.
        Raises InvalidValueError: when a value has the wrong type or lies outside its range.

        Example:
            >>> gpuwatch.Policy.from_dict({"claim": "burst"}).claim.value
            'burst'
        """
        if not isinstance(data, Mapping):
            raise InvalidValueError(f"policy: expected a table, found {data!r}")
        known = tuple(each.name for each in fields(Policy))
        for name in data:
            if name not in known:
                raise UnknownNameError("policy key", str(name), known)
        return Policy(**data)


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValueError(f"{what}: expected a name, found {value!r}")
    return value


def _clock(value: object) -> ReferenceClock:
    try:
        return checked_clock(value)
    except ValueError as error:
        raise InvalidValueError(f"reference_clock_mhz: {error}") from error


def _share(what: str, value: object, range_: Range) -> float:
    if not range_.holds(value):
        raise InvalidValueError(f"{what}: expected a ratio from {range_}, found {value!r}; 1 % is 0.01")
    return float(value)
