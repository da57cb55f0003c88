"""The figures of a finding in words, with their units."""

from collections.abc import Callable, Mapping

from annotate.amount_words import amount_text, duration_text
from annotate.verdict import Finding

_UNITS: Mapping[str, Callable[[float], str]] = {
    "ratio": lambda amount: f"{100.0 * amount:.3g} %",
    "s": lambda amount: duration_text(amount, 3),
    "ns": lambda amount: duration_text(amount / 1e9, 3),
    "mhz": lambda amount: f"{amount:.0f} MHz",
    "w": lambda amount: f"{amount:.4g} W",
    "c": lambda amount: f"{amount:.4g} °C",
    "bytes": lambda amount: amount_text(amount, "B"),
}


def describe_facts(finding: Finding) -> str:
    """Return a finding's figures, such as "capped 99.9 %, power 692 W"; without texts that its sentence holds already."""
    facts = ((name, value) for name, value in finding.facts.items() if not (isinstance(value, str) and value in finding.says))
    return ", ".join(words for name, value in facts if (words := _describe(name, value)))


def bare_phrase(words: str) -> str:
    """Return a fact's phrase without the comma or colon that joins it to a rule's sentence."""
    return words.lstrip(",;: ")


def _describe(name: str, value: object) -> str:
    """Return one figure; empty for an unused phrase."""
    label, _, unit = name.rpartition("_")
    if value is None:
        return f"{(label if unit in _UNITS else name).replace('_', ' ')} not observed"
    if isinstance(value, bool):
        return f"{name.replace('_', ' ')}: {'yes' if value else 'no'}"
    if isinstance(value, str):
        return f"{name.replace('_', ' ')}: {words}" if (words := bare_phrase(value)) else ""
    if not isinstance(value, int | float):
        return f"{name.replace('_', ' ')}: {value}"
    if label and unit in _UNITS:
        return f"{label.replace('_', ' ')} {_UNITS[unit](value)}"
    return f"{name.replace('_', ' ')} {value:.6g}" if isinstance(value, float) else f"{name.replace('_', ' ')} {value}"
