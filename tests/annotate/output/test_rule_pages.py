"""The rules' pages: their content, their writer, and the committed page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from annotate.claims import Claim
from annotate.evidence import Evidence
from annotate.output.rule_pages import HEADINGS, page, words
from annotate.rule import Answer, Clear, Rule, RuleKind, rule
from annotate.rules import RULES
from tests.annotate.output.page import WRITTEN, main, pages


def test_rule_pages_are_fresh() -> None:
    assert WRITTEN.read_text(encoding="utf-8") == pages(), "stale: python -m tests.annotate.output.page"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_page_describes_rule_and_limits(rule: Rule) -> None:
    """A page has the name of the rule, all headings, and every limit with its reason."""
    shown = page(rule)
    assert shown.startswith(f"## {rule.name}\n")
    assert all(f"**{heading}.**" in shown for heading in HEADINGS)
    for limit in rule.limits.values():
        assert f"| `{limit.name}` | {limit.default:g} | {limit.range} | {limit.why} |" in shown


def test_page_marks_required_rules() -> None:
    required = next(rule for rule in RULES if rule.name == "stale-daemon")
    assert "Required under every claim." in page(required)
    optional = next(rule for rule in RULES if rule.name == "persistence-off")
    assert "Required" not in page(optional)


def test_every_rule_is_in_the_contents_once() -> None:
    contents = pages().split("\n## ")[0]
    assert all(contents.count(f"(#{rule.name})") == 1 for rule in RULES)


@pytest.mark.parametrize(
    "docstring",
    [
        None,
        "Finds it.",
        "Finds it.\n\nWhy it matters:\n    A.\n\nRemedy:\n    B.\n\nLimits of detection:\n    C.\n\nSource:\n    D.",
        "Finds it.\n\nWhy it matters:\n    A.\n\nLimits of detection:\n\nRemedy:\n    B.\n\nSource:\n    D.",
        "Why it matters:\n    A.\n\nLimits of detection:\n    C.\n\nRemedy:\n    B.\n\nSource:\n    D.",
    ],
)
def test_docstring_with_missing_sections_is_refused(docstring: str | None) -> None:
    def check(evidence: Evidence, claim: Claim) -> Answer:
        return Clear()

    check.__doc__ = docstring
    with pytest.raises(ValueError, match="undocumented: expected"):
        words(rule("undocumented", kind=RuleKind.INTEGRITY, says="it", remedy="do it")(check))


def test_page_writer_checks_its_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "RULES.md"
    assert main(["--check"], path) == 1
    assert main([], path) == 0
    assert main(["--check"], path) == 0
    path.write_text("old")
    assert main(["--check"], path) == 1
    assert "stale" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--chek"], ["--check", "x"], [""]])
def test_page_writer_refuses_other_arguments(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments, tmp_path / "RULES.md") == 2
    assert capsys.readouterr().err == "usage: python -m tests.annotate.output.page [--check]\n"
    assert not list(tmp_path.iterdir())


def test_page_writer_checks_the_committed_page() -> None:
    """The module, run as a program, checks the committed page."""
    done = subprocess.run([sys.executable, "-m", "tests.annotate.output.page", "--check"], check=False)
    assert done.returncode == 0
