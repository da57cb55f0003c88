"""Windows around the harnesses of Triton, torch and CuPy: a program needs only ``import gpuwatch.auto``.

The rest of the program stays unchanged.  ``triton.testing.do_bench`` and its relatives, torch's ``Timer`` and CuPy's
``benchmark`` return the same numbers, and the process prints the verdicts at its end.  ``GPUWATCH=off`` disables all this.
"""

from __future__ import annotations

from gpuwatch.harness import session
from gpuwatch.harness.startup.gpuwatch_import_hook import install

__all__ = ["report", "results"]


def results() -> list[dict[str, object]]:
    """Wait for the verdicts of all harness windows, and return them as plain data.

    Provisional: keys may be added.

    Returns:
        One dict per closed window: at least ``face`` (the harness), ``label``, ``run``, ``status``, and ``causes`` or ``why``.

    Raises nothing.  A telemetry failure is the reason of an unproven verdict.

    Example:
        >>> import gpuwatch.auto
        >>> gpuwatch.auto.results()
        []
    """
    return [{"face": window.face, "label": window.label, **window.attached} for window, _ in session.current_session().judge()]


def report() -> str:
    """Return the lines that the process would print at its end; the process then omits these lines.

    Provisional: the text may change.

    Returns:
        Lines of text; empty if no harness ran since the last call.

    Raises nothing.  A telemetry failure is the reason of an unproven verdict.

    Example:
        >>> import gpuwatch.auto
        >>> gpuwatch.auto.report()
        ''
    """
    return "\n".join(session.summarize(session.current_session()))


if not session.is_off():
    install()
