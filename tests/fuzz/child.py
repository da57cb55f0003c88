"""One target under atheris: python -m tests.fuzz.child TARGET [libFuzzer's options and folders].  Started by ``tests.fuzz``."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any


def main() -> None:
    # A tool for this alone: nothing else needs it installed.
    atheris: Any = importlib.import_module("atheris")
    name = sys.argv.pop(1)
    warnings.simplefilter("ignore")
    # The judge is no parser: it is run, and what it does with strange numbers is not what tells one input from another.
    with atheris.instrument_imports(include=["gpuwatch", "annotate.evidence", "annotate.user_policy", "annotate.verdict"]):
        from tests.fuzz.targets import target

        found = target(name)
    atheris.Setup(sys.argv, found)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
