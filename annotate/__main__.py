"""The judge as a program: ``python -m annotate FILE`` prints the verdicts of a recording."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from annotate.capsule.manifest import UNPACKED_BYTES
from annotate.capsule.unpack import unpack
from annotate.claims import Claim
from annotate.errors import CapsuleError
from annotate.evidence import Evidence
from annotate.judge import judge
from annotate.output.report import plain, texts
from annotate.user_policy import Policy


def main(arguments: Sequence[str]) -> int:
    """Print the verdict on every window of a recording; return 2, with a line on stderr, without a readable recording."""
    parser = argparse.ArgumentParser(prog="python -m annotate", description="Judge the windows of a recording again.")
    parser.add_argument("file", type=Path, help="a recording, as `gpuwatch record` writes it")
    parser.add_argument("--claim", choices=[claim.value for claim in Claim], default=Claim.SUSTAINED.value)
    parser.add_argument("-v", "--verbose", action="store_true", help="list facts, and the rules that found nothing")
    chosen = parser.parse_args(arguments)
    policy = Policy(Claim(chosen.claim))
    try:
        evidence = _read(chosen.file)
    except CapsuleError as error:
        sys.stderr.write(plain(f"{chosen.file}: {error}") + "\n")
        return 2
    for _, pieces in groupby(evidence, key=lambda piece: piece.window):
        verdicts = [judge(piece, policy) for piece in pieces]
        sys.stdout.write(texts(verdicts, verbose=chosen.verbose, more="`python -m annotate -v` lists them") + "\n")
    return 0


def _read(path: Path) -> tuple[Evidence, ...]:
    """Return the evidence of a file.

    Raises CapsuleError: when the file cannot be read, or is not a recording with evidence.
    """
    try:
        if path.exists() and not path.is_file():
            raise CapsuleError("expected a recording, found a folder or a pipe; write the recording to a regular file first")
        with path.open("rb") as file:
            evidence = unpack(file.read(UNPACKED_BYTES + 1))
    except OSError as error:
        raise CapsuleError(
            f"expected a recording, found nothing to read: {error.strerror}; check path and permissions"
        ) from error
    if not evidence:
        raise CapsuleError("expected a recording with evidence, found an empty one; record a window again")
    return evidence


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # exit quietly if a reader such as head closes the pipe
    sys.exit(main(sys.argv[1:]))
