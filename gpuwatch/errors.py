"""gpuwatch's exception hierarchy, without the exceptions of ``gpuwatch.diff``.

GpuwatchError
├── UsageError            a request that cannot be met; exit code 2 on the command line (`gpuwatch run`: 125)
│   └── TrustedMarkError  a claimed number for a mark that began without --untrusted
├── SourceError           evidence that a source cannot give
│   ├── SourceGoneError   the whole driver, recording or simulation is gone; try again later
│   └── DeviceLostError   one GPU is gone; the others continue
├── StoreError            the store cannot be opened, read or written, or lacks the requested data
├── ExportError           windows cannot be exported or reported; earlier exports stay whole
├── DaemonError           the daemon cannot be reached, refused, or went away
├── WrongResultError      a result differs from its reference; nothing was timed
└── RejectedError         the verdict is rejected, and the caller requested an exception
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from annotate.verdict import Verdict


class GpuwatchError(Exception):
    """The base of gpuwatch's public errors.

    Example:
        >>> try:
        ...     gpuwatch.window(claim="steady")
        ... except gpuwatch.GpuwatchError as error:
        ...     print(error)
        unknown claim 'steady'; known: burst, fixed-clock, sustained
    """


class UsageError(GpuwatchError):
    """A request that cannot be met; the message names the expected and the found value.

    Example:
        >>> try:
        ...     gpuwatch.bench(3)
        ... except gpuwatch.UsageError as error:
        ...     print(error)
        bench: expected a function, found 3; give the function itself, and its arguments as args=(...)
    """

    code = "usage"  # the code in messages of the daemon


class TrustedMarkError(UsageError):
    """A claimed number, which only untrusted code may have, for a mark that began without --untrusted."""

    code = "trusted"


class SourceError(GpuwatchError):
    """Evidence that a source cannot give.

    Example:
        >>> from gpuwatch.errors import DeviceLostError, SourceError
        >>> isinstance(DeviceLostError("GPU-1", "fell off the bus"), SourceError)
        True
    """


class SourceGoneError(SourceError):
    """A driver, recording or simulation that is missing or gone.

    Example:
        >>> from gpuwatch.errors import SourceError, SourceGoneError
        >>> issubclass(SourceGoneError, SourceError)
        True
    """


class DeviceLostError(SourceError):
    """A GPU that stopped answering; the others continue.

    Attributes:
        uuid: UUID of the GPU.
        reason: Driver's reason, as text.

    Example:
        >>> from gpuwatch.errors import DeviceLostError
        >>> print(DeviceLostError("GPU-1", "fell off the bus"))
        GPU-1: fell off the bus
    """

    def __init__(self, uuid: str, reason: str) -> None:
        super().__init__(f"{uuid}: {reason}")
        self.uuid = uuid
        self.reason = reason


class StoreError(GpuwatchError):
    """A store that cannot be opened, read or written, or that lacks the requested data.

    Example:
        >>> from gpuwatch.errors import GpuwatchError, StoreError
        >>> issubclass(StoreError, GpuwatchError)
        True
    """


class ExportError(GpuwatchError):
    """Windows that cannot be exported, or a report that is too large; earlier exports stay whole.

    Example:
        >>> from gpuwatch.errors import ExportError, GpuwatchError
        >>> issubclass(ExportError, GpuwatchError)
        True
    """


class DaemonError(GpuwatchError):
    """A daemon that cannot be reached, that refused a request, or that went away.

    Attributes:
        code: Word for programs: the code of the daemon's refusal, or the client's, such as unreachable or silent.

    Example:
        >>> from gpuwatch.errors import DaemonError
        >>> DaemonError("no answer").code
        'unreachable'
    """

    def __init__(self, message: str, code: str = "unreachable") -> None:
        super().__init__(message)
        self.code = code


class WrongResultError(GpuwatchError):
    """A result that differs from the reference by more than allowed; ``bench`` timed nothing.

    Attributes:
        error_ratio: Largest relative error against the reference, a ratio; infinite for another shape, NaN or infinity.
        limit_ratio: Largest relative error allowed, a ratio.

    Example:
        >>> try:
        ...     gpuwatch.bench(sum, args=([1.0, 2.0],), reference=3.3)
        ... except gpuwatch.WrongResultError as error:
        ...     error.error_ratio > error.limit_ratio
        True
    """

    def __init__(self, error_ratio: float, limit_ratio: float) -> None:
        how = (
            f"expected a relative error of at most {limit_ratio:.3g} against the reference, found {error_ratio:.3g}"
            if math.isfinite(error_ratio)
            else "expected the shape of the reference and finite values, found another shape, NaN or infinity"
        )
        super().__init__(f"the result is wrong: {how}; nothing was timed")
        self.error_ratio = error_ratio
        self.limit_ratio = limit_ratio


class RejectedError(GpuwatchError):
    """A rejected verdict, raised by ``raise_for_verdict`` and by ``on_reject="raise"``.

    Attributes:
        verdict: The rejected verdict.

    Example:
        >>> verdict = judge(unpack(Path("window.capsule").read_bytes())[0])
        >>> print(str(gpuwatch.RejectedError(verdict)).partition(":")[0])
        side-stream-iterations is rejected
    """

    def __init__(self, verdict: Verdict) -> None:
        reasons = [f"{h.rule}: {h.says}" for h in verdict.hazards if h.severity == "reject" and not h.accepted]
        super().__init__(f"{verdict.label or 'this window'} is {verdict.status.value}: {'; '.join(reasons) or verdict.why}")
        self.verdict = verdict
