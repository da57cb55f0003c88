"""One target under atheris: python -m tests.fuzz.child TARGET [libFuzzer's options and folders].  Started by ``tests.fuzz``."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any


def main() -> None:
    # Only this module imports atheris.
    atheris: Any = importlib.import_module("atheris")
    name = sys.argv.pop(1)
    warnings.simplefilter("ignore")
    # The judge's rules and proofs are not instrumented, because their branches do not help to find new inputs of a parser.
    with atheris.instrument_imports(
        include=["gpuwatch", "annotate.capsule", "annotate.evidence", "annotate.user_policy", "annotate.verdict"]
    ):
        from tests.fuzz.targets import target

        found = target(name)
    atheris.Setup(sys.argv, found)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
