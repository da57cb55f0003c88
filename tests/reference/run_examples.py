"""Runner of every example in public docstrings: ``python -m tests.reference.run_examples`` in a prepared folder.

The folder holds ``window.capsule``; the environment names a daemon.  The output of a line that ends in ``# varies`` depends
on the machine: any number matches any number, and any status or decision matches any other.
"""

from __future__ import annotations

import doctest
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpuwatch
from annotate.capsule.unpack import unpack
from annotate.compare.decision import Decision
from annotate.judge import judge
from tests.reference.public_names import CONSTANTS, list_members, list_names

VARIES = "# varies"
_WORDS = re.compile("|".join([*map(str, gpuwatch.Status), "not rejected", *map(str, Decision)]), re.IGNORECASE)
_NUMBER = re.compile(r"\d+(\.\d+)?")


def normalize(text: str) -> str:
    """Return the text with one word for every status and decision, and one for every number."""
    return _NUMBER.sub("N", _WORDS.sub("WORD", text))


class ExampleChecker(doctest.OutputChecker):
    """A checker for varying outputs, which the runner marks by a leading ``# varies``."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if want.startswith(VARIES):
            return normalize(want.removeprefix(VARIES)) == normalize(got)
        return super().check_output(want, got, optionflags)


def list_sessions() -> Iterator[tuple[str, str]]:
    """Yield the name and the Python session of each public name; a class's session includes its members' examples."""
    yield from ((f"gpuwatch.{name}", parts.example) for name, parts in CONSTANTS.items())
    for name in list_names():
        examples = [name.parts.example, *(member.parts.example for member in list_members(name))]
        text = "\n\n".join(filter(None, examples))
        if text:
            yield name.path, text


def run_session(path: str, text: str, report: Any = None) -> tuple[int, int]:
    """Run one session; return the number of failed examples, and the number of all examples."""
    names = {"gpuwatch": gpuwatch, "time": time, "Path": Path, "judge": judge, "unpack": unpack}
    test = doctest.DocTestParser().get_doctest(text + "\n", names, path, path, 0)
    for example in test.examples:
        if VARIES in example.source and example.want:
            example.want = VARIES + example.want
    ran = doctest.DocTestRunner(ExampleChecker(), optionflags=doctest.ELLIPSIS).run(test, out=report)
    return ran.failed, ran.attempted


def main() -> int:
    """Run all sessions; print failures, and at the end the numbers of failed and of all examples."""
    ran = [run_session(path, text) for path, text in list_sessions()]
    sys.stdout.write(f"{sum(failed for failed, _ in ran)} of {sum(count for _, count in ran)} failed\n")
    return int(any(failed for failed, _ in ran))


if __name__ == "__main__":
    sys.exit(main())
