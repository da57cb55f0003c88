"""The judge's answer on one window, as its worker sends it to the daemon: a length, then the message."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from annotate.evidence import RecordedWindow

LENGTH = struct.Struct(">I")  # before each request and each answer


class Judgement(msgspec.Struct, frozen=True):
    """Verdicts, worst first, as plain data, each GPU's evidence packed, and a signature under each.

    A signature is the public key (32 bytes) and what it signed with (64); there are none where the key cannot be used.
    ``recorded`` is what the run adds to the records of its work, by the digests of their keys.
    ``run`` is what was asked for: an answer that comes too late must not be taken for the next one's.
    """

    run: str = ""
    verdicts: list[dict[str, Any]] = []
    evidence: dict[str, bytes] = {}
    signatures: list[bytes] = []
    recorded: dict[str, RecordedWindow] = {}
    why: str = ""
