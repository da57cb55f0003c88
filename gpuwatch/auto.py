"""Windows around the harnesses of Triton, torch and CuPy: ``import gpuwatch.auto`` is all a program needs.

Nothing else of the program changes: ``triton.testing.do_bench`` and its kin, torch's ``Timer`` and CuPy's ``benchmark`` return
what they did, and the process says at its end what became of their windows.  ``GPUWATCH=off`` leaves everything alone.
"""

from __future__ import annotations

from gpuwatch.harness import session
from gpuwatch.harness.startup.gpuwatch_import_hook import install

__all__ = ["report", "results"]


def results() -> list[dict[str, object]]:
    """Wait for the verdicts of all windows so far; return face, label, run, status and causes of each, as plain data."""
    return [{"face": window.face, "label": window.label, **window.attached} for window, _ in session.current_session().judge()]


def report() -> str:
    """Return the lines that the end of the process would say now, which are then not said again."""
    return "\n".join(session.summarize(session.current_session()))


if not session.is_off():
    install()
