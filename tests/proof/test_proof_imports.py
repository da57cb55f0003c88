"""The generator's independence of the judge."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent
# Modules that import the judge, or another module of this list; no module of the generator imports one of these.
_ASKING = frozenset(
    {
        "judged",
        "published",
        "published_status",
        "cells",
        "test_first_table",
        "test_plain_windows",
        "test_proof_judged",
        "test_essay_hazards",
        "test_conditions_variants",
        "asked",
        "plain_programs",
        "fooling",
        "fooling_page",
        "test_fooling_variants",
        "test_fooling_windows",
        "untrusted_page",
    }
)
_JUDGING = ("rule", "rules", "judge", "held", "onset", "duty", "presence", "cold", "outlying", "modes")


def _imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{each.name}" for each in node.names}
    return found


def test_generator_imports_no_judging_module() -> None:
    """The generator's sources import only evidence and capsules from the judge's package."""
    sources = sorted(source for source in _HERE.glob("*.py") if source.stem not in _ASKING)
    assert len(sources) > 10
    named = {part for source in sources for name in _imported(source) for part in name.split(".")}
    assert not named & _ASKING
    judges = [name for source in sources for name in _imported(source) if name.split(".")[0] == "annotate"]
    assert judges
    parts = [set(name.split(".")) for name in judges]
    assert [each for each in parts if not each & {"evidence", "capsule"} or each & set(_JUDGING)] == []


def test_generator_loads_no_rule() -> None:
    """Importing the generator and its scores does not load a rule through another module."""
    code = "import sys, tests.proof.pairs, tests.proof.scores; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=_HERE.parents[1], capture_output=True, text=True, check=True)
    names = [name for name in loaded.stdout.split() if name.startswith("annotate.")]
    assert any(name.startswith("annotate.") and "evidence" in name for name in names)
    assert [name for name in names if {"rules", "judge"} & set(name.split("."))] == []
