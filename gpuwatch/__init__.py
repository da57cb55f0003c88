"""The witness and the judge of GPU benchmark numbers.

Programs may rely on the names in ``__all__``; ``docs/API.md`` states the promise of each.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from annotate import __version__
from gpuwatch.errors import GpuwatchError, RejectedError, UsageError, WrongResultError

# The daemon that a window starts has no windows, and the window waits for its imports (docs/decisions/0127).
if TYPE_CHECKING or "gpuwatch_daemon" not in sys._xoptions:  # noqa: SLF001 - the documented way to read options of -X
    from annotate.claims import Claim
    from annotate.user_policy import Policy
    from annotate.verdict import Finding, Status, Verdict
    from gpuwatch.client.start import start
    from gpuwatch.client.window import Window, window

if TYPE_CHECKING:
    from gpuwatch.client.many_verdicts import verdicts
    from gpuwatch.comparing import Compared, compare
    from gpuwatch.harness.steady_do_bench import do_bench
    from gpuwatch.measuring import Measurement, bench

# These names are imported at first use, so that `import gpuwatch` stays fast.  The window is imported at once: a child forked
# while another thread opens the first window would wait for this import forever.
_LATER = {
    **dict.fromkeys(("bench", "Measurement"), "gpuwatch.measuring"),
    **dict.fromkeys(("compare", "Compared"), "gpuwatch.comparing"),
    "do_bench": "gpuwatch.harness.steady_do_bench",
    "verdicts": "gpuwatch.client.many_verdicts",
    "load_ipython_extension": "gpuwatch.cli.notebook",  # for `%load_ext gpuwatch`
}


def __getattr__(name: str) -> Any:  # the type depends on the name
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_LATER[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


__all__ = [
    "Claim",
    "Compared",
    "Finding",
    "GpuwatchError",
    "Measurement",
    "Policy",
    "RejectedError",
    "Status",
    "UsageError",
    "Verdict",
    "Window",
    "WrongResultError",
    "__version__",
    "bench",
    "compare",
    "do_bench",
    "start",
    "verdicts",
    "window",
]
