"""Target: a recording of `gpuwatch record` gives evidence that the judge can judge, or a CapsuleError.

The first byte selects the meaning of the rest: a whole file, or changes of a valid file.  Changed files pass the archive's
checksums.
"""

from __future__ import annotations

import copy
import io
import json
import zipfile
from typing import Any

from annotate.capsule import pack
from annotate.errors import CapsuleError
from gpuwatch.sources import recordings
from tests.annotate.builders import OWN, evidence
from tests.fuzz.dealt import Dealt
from tests.fuzz.refused import in_one_line
from tests.fuzz.targets.judged import judged

_GOOD = pack.pack([
    evidence(length_s=0.3, period_s=0.1, signals={"sm_clock_mhz": 1980, "power_w": 600.0, "utilization_ratio": 0.9}, processes=(OWN,))
])  # fmt: skip


def _member(name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(_GOOD)) as archive:
        return archive.read(name)


_MANIFEST: dict[str, Any] = json.loads(_member("manifest.json"))
_ARRAYS = _member("arrays")


def target(data: bytes) -> None:
    blob = data[1:] if data[:1] < b"\x40" else alter(Dealt(data[1:]))
    try:
        pieces = pack.unpack(blob)
    except CapsuleError as error:
        in_one_line(error)
        return
    recordings.merged(pieces)
    judged(pieces, data)
    pack.pack(pieces)


def alter(dealt: Dealt) -> bytes:
    manifest = copy.deepcopy(_MANIFEST)
    for _ in range(1 + dealt.byte() % 4):
        replace_value(manifest, dealt)
    arrays = bytearray(_ARRAYS)
    for _ in range(dealt.byte() % 4):
        arrays[dealt.number(2) % len(arrays)] ^= dealt.byte()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        archive.writestr("arrays", bytes(arrays) + dealt.rest())
    return out.getvalue()


def replace_value(tree: Any, dealt: Dealt) -> None:  # any JSON
    """Remove, duplicate or replace one node of the tree."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        if not keys:
            return
        key = dealt.choice(keys)
        if not isinstance(tree[key], dict | list) or dealt.byte() % 8 == 0:
            break
        tree = tree[key]
    match dealt.byte() % 8:
        case 0:
            del tree[key]
        case 1 if isinstance(tree, dict):
            tree[dealt.text()] = tree[key]
        case 2 if isinstance(tree, list):
            tree.append(tree[key])
        case _:
            tree[key] = dealt.value()
