"""The errors of the judge: one base class to catch."""

from collections.abc import Iterable


class AnnotateError(Exception):
    """Base of everything this package raises on purpose."""


class UnknownNameError(AnnotateError):
    """A claim, rule or limit was named that does not exist; the message suggests the nearest."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(map(str, known))  # an enumeration's member reads as its value
        import difflib  # for a misspelt name alone

        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        super().__init__(f"unknown {kind} {name!r}; {hint}")
        self.kind = kind
        self.name = name


class InvalidValueError(AnnotateError):
    """A value of the wrong type or outside its range; the message says what was expected."""


class CapsuleError(AnnotateError):
    """Packed evidence that cannot be read: torn, foreign, or of a newer schema."""
