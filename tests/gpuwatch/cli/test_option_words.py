"""Tests that verdicts on the command line name options in place of Python's parameters."""

from __future__ import annotations

from dataclasses import replace

from annotate.rules import RULES
from annotate.verdict import Answered, Finding, Status, Verdict
from gpuwatch.cli.option_words import name_options
from gpuwatch.cli.output import lay_out

FOUND = Verdict(
    status=Status.FLAGGED,
    claim="sustained",
    why="conditions: a named clock (locked_mhz=)",
    findings=(
        Finding(
            rule="bursty-duty-cycle",
            answered=Answered.FOUND,
            severity="flag",
            says="the GPU waited",
            remedy="Remove sleeps, or declare them: every= or claim='burst'; else varies=True.",
        ),
    ),
)


def test_remedies_name_options_on_the_command_line() -> None:
    """The line of a hazard names options; the verdict itself keeps Python's words."""
    shown = " ".join(lay_out([FOUND], None, more="").split())
    assert "declare them: --every DURATION or --claim burst; else --varies" in shown
    assert "a named clock (--locked-mhz MHZ)" in shown
    assert "every=" in str(FOUND)


def test_every_remedy_with_a_claims_parameter_has_an_option() -> None:
    """No remedy of a rule names a claim's Python parameter on the command line."""
    (finding,) = FOUND.findings
    for rule in RULES:
        named = name_options(replace(FOUND, findings=(replace(finding, remedy=rule.remedy),)))
        assert not any(word in named.findings[0].remedy for word in ("every=", "claim=", "varies=", "locked_mhz="))
