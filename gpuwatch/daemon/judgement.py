"""The judge's result for one window.  The worker sends a length, then the message."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from annotate.evidence import RecordedWindow

LENGTH = struct.Struct(">I")  # before each request and each answer


class Judgement(msgspec.Struct, frozen=True):
    """Verdicts as plain data, worst first, with each GPU's packed evidence and each verdict's signature.

    A signature holds the public key (32 bytes) and the signature itself (64 bytes); without a usable key the list is empty.
    ``recorded`` holds the run's entries for the records of its work, by the digests of the work keys.
    ``run`` is the requested run, so that the daemon can discard a late answer.
    """

    run: str = ""
    verdicts: list[dict[str, Any]] = []
    evidence: dict[str, bytes] = {}
    signatures: list[bytes] = []
    recorded: dict[str, RecordedWindow] = {}
    why: str = ""
