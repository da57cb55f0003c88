"""The errors of the judge: one base class to catch."""

from collections.abc import Iterable


class AnnotateError(Exception):
    """The base class of the errors that ``annotate`` defines.

    Example:
        >>> from annotate.errors import AnnotateError
        >>> try:
        ...     gpuwatch.Policy(claim="steady")
        ... except AnnotateError as error:
        ...     print(error)
        unknown claim 'steady'; known: burst, fixed-clock, sustained
    """


class UnknownNameError(AnnotateError):
    """A claim, rule, limit, threshold or policy key that does not exist; the message suggests the nearest name, or lists all.

    Attributes:
        kind: Kind of the name: claim, rule, limit of RULE, threshold or policy key.
        name: Name that was given.

    Example:
        >>> from annotate.errors import UnknownNameError
        >>> try:
        ...     gpuwatch.Claim.of("brst")
        ... except UnknownNameError as error:
        ...     print(error)
        unknown claim 'brst'; did you mean 'burst'?
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(map(str, known))  # str() of an enumeration's member is its value
        import difflib  # imported here: only misspelt names need it

        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        super().__init__(f"unknown {kind} {name!r}; {hint}")
        self.kind = kind
        self.name = name


class InvalidValueError(AnnotateError):
    """A value of the wrong type or outside its range, or data that is no verdict; the message states what was expected.

    Example:
        >>> from annotate.errors import InvalidValueError
        >>> try:
        ...     gpuwatch.Policy(tolerance_ratio=2)
        ... except InvalidValueError as error:
        ...     print(error)
        tolerance_ratio: expected a ratio from 0.0001 to 0.2, found 2; 1 % is 0.01
    """


class CapsuleError(AnnotateError):
    """A recording or report that cannot be read: damaged, too large, of another format, or of a newer schema.

    Example:
        >>> from annotate.errors import CapsuleError
        >>> try:
        ...     unpack(b"no recording")
        ... except CapsuleError as error:
        ...     print(error)
        expected a gpuwatch recording, found damaged data (BadZipFile: File is not a zip file); copy or export it again
    """
