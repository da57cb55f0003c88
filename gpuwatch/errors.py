"""gpuwatch's exception hierarchy.

GpuwatchError
├── UsageError            the caller asked for something impossible: one clear line, exit code 2
│   └── TrustedMarkError  a claim for a mark that was not begun as one of untrusted code
├── SourceError           evidence cannot be had
│   ├── SourceGoneError   the whole driver: try again later, serve what is known
│   └── DeviceLostError   one GPU: the others go on
├── StoreError            the database refuses
├── ExportError           windows cannot be handed on; what was stays
├── DaemonError           the daemon cannot be reached, refused, or went away
├── WrongResultError      what was to be timed does not compute what its reference does
└── RejectedError         a verdict the caller insisted on was not given
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from annotate.verdict import Verdict


class GpuwatchError(Exception):
    """Base of everything this package raises on purpose."""


class UsageError(GpuwatchError):
    """An impossible request: the message says what was expected, what was found, what to do; ``code`` is the wire's."""

    code = "usage"


class TrustedMarkError(UsageError):
    """A claimed number, which only untrusted code makes, for a mark that was begun without --untrusted."""

    code = "trusted"


class SourceError(GpuwatchError):
    """Evidence cannot be had from a source."""


class SourceGoneError(SourceError):
    """The driver, recording or simulation as a whole is not there (any more)."""


class DeviceLostError(SourceError):
    """One GPU stopped answering for good."""

    def __init__(self, uuid: str, reason: str) -> None:
        super().__init__(f"{uuid}: {reason}")
        self.uuid = uuid
        self.reason = reason


class StoreError(GpuwatchError):
    """The store could not be opened, read or written."""


class ExportError(GpuwatchError):
    """Windows cannot be written where they should go; what went there before is whole."""


class DaemonError(GpuwatchError):
    """The daemon could not be reached, refused, or went away; ``code`` is the wire's."""

    def __init__(self, message: str, code: str = "unreachable") -> None:
        super().__init__(message)
        self.code = code


class WrongResultError(GpuwatchError):
    """The result lies further from its reference than allowed: no time of it counts."""

    def __init__(self, error_ratio: float, limit_ratio: float) -> None:
        how = (
            f"its largest relative error against the reference is {error_ratio:.3g}, expected at most {limit_ratio:.3g}"
            if math.isfinite(error_ratio)
            else "it has another shape than the reference, or is NaN or infinite where that is not"
        )
        super().__init__(f"the result is wrong: {how}; nothing was timed")
        self.error_ratio = error_ratio
        self.limit_ratio = limit_ratio


class RejectedError(GpuwatchError):
    """The verdict is one the caller would not accept; it is in ``verdict``."""

    def __init__(self, verdict: Verdict) -> None:
        reasons = [f"{h.rule}: {h.says}" for h in verdict.hazards if h.severity == "reject" and not h.accepted]
        super().__init__(f"{verdict.label or 'this window'} is {verdict.status.value}: {'; '.join(reasons) or verdict.why}")
        self.verdict = verdict
