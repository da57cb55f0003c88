"""The judge on paired windows of real GPUs: committed evidence, and the judge's answers as rows.

    python -m tests.hardware.paired_scores add FOLDER …      adds the output of ``paired.py`` to the committed data, then judges
    python -m tests.hardware.paired_scores judge             judges every stored window again, into h200-paired-results.json

``make pages`` renders the tables.  Times are rounded by ``tests/truth_windows.py``; identities are masked.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from annotate import __version__
from annotate.capsule.pack import pack, unpack
from annotate.evidence import Evidence
from tests.hardware import paired_data as data
from tests.proof.judged import answer
from tests.proof.scores import Answer, Row
from tests.truth_windows import times_of, with_times

TRACES = Path(__file__).parents[1] / "traces"
STEM = "h200-paired"
CLEAN, STALLED = "nothing", "natural-stall"
_CARD_LENGTH = 8
_DIGITS = 6
_UNBOUNDED = 1e9  # JSON has no infinity


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One judged window; the true values lack numbers that were not measured or have no reference."""

    row: Row
    card: str
    date: str
    is_capped: bool
    throughout: bool = False
    has_truth: bool = True  # False for a window that is neither a reference nor has references
    references_differ: Mapping[str, float]
    apart_ratio: float | None = None  # throughput over the median of the other clean windows of the work and process, minus 1
    words: str = ""

    def is_clear_miss(self, number: str) -> bool:
        """Return True if the miss exceeds the references' difference, which is the uncertainty of the true value."""
        row = self.row
        if number not in row.truth or row.covers(number) is not False:
            return False
        beyond = abs(row.truth[number]) - (row.bound(number) or 0.0) - row.repeatability(number)
        return beyond > abs(self.references_differ.get(number, 0.0))

    def is_covered_between_references(self, number: str) -> bool:
        """Return True if the deviation from a value between the two references lies within bound plus repeatability."""
        within = (self.row.bound(number) or 0.0) + self.row.repeatability(number)
        return abs(self.row.truth[number]) <= within + abs(self.references_differ.get(number, 0.0)) / 2.0

    @property
    def cluster(self) -> tuple[str, str, str]:
        return self.card, self.date, self.row.workload


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """One window's committed facts; the evidence is at the same position in the capsule."""

    window: data.Row
    card: str  # a digest of the UUID: constant over windows, without identifying the card
    model: str
    driver: str
    torch: str
    date: str
    deviation: dict[str, float] | None = None
    references_differ: dict[str, float] = {}

    @property
    def call(self) -> tuple[str, str, int]:
        """Return the key of the call of ``paired.py`` that recorded the window."""
        return self.card, self.date, self.window.seed


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """All windows, and the number of failed windows, which are left out."""

    failed_count: int
    windows: list[Stored]


Windows: TypeAlias = tuple[Whole, list[Evidence]]


def read_runs(folder: Path) -> Iterator[Windows]:
    """Yield the windows of each call whose files lie in a folder."""
    from tests.hardware.render import masked  # imported late, because ``render`` renders the page of this module's data

    for path in sorted(folder.glob("paired-*.json")):
        said = json.loads(path.read_text(encoding="utf-8"))
        card = hashlib.sha256(said["uuid"].encode()).hexdigest()[:_CARD_LENGTH]
        capsules = sorted(folder.glob(f"{path.stem}-*.capsule"), key=lambda each: int(each.stem.rpartition("-")[2]))
        evidences = [each for capsule in capsules for each in unpack(capsule.read_bytes())]
        stored = []
        for window in said["windows"]:
            truth = window.pop("truth")
            stored.append(
                Stored(
                    window=msgspec.convert(window, data.Row), card=card, model=said["card"], driver=said["driver"],
                    torch=said["torch"] or "", date=said["date"], deviation=truth and truth["deviation"],
                    references_differ=truth["references_differ"] if truth else {},
                )
            )  # fmt: skip
        whole = Whole(failed_count=len(said["failed"]), windows=stored)
        yield whole, [masked(each) for each in evidences]


def add(runs: Iterable[Windows], folder: Path = TRACES) -> None:
    """Add windows to the committed data; an already committed call stays unchanged."""
    whole, evidences = read(folder) if (folder / f"{STEM}.json.xz").exists() else (Whole(failed_count=0, windows=[]), [])
    for run, found in runs:
        if {each.call for each in run.windows} & {each.call for each in whole.windows}:
            continue
        whole = Whole(failed_count=whole.failed_count + run.failed_count, windows=[*whole.windows, *run.windows])
        evidences = [*evidences, *found]
    (folder / f"{STEM}.json.xz").write_bytes(lzma.compress(msgspec.json.encode(whole)))
    (folder / f"{STEM}.capsule").write_bytes(pack([replace(each, timings=None) for each in evidences]))
    (folder / f"{STEM}-times.npz.xz").write_bytes(times_of(evidences))


def read(folder: Path = TRACES) -> Windows:
    whole = msgspec.json.decode(lzma.decompress((folder / f"{STEM}.json.xz").read_bytes()), type=Whole)
    evidences = unpack((folder / f"{STEM}.capsule").read_bytes())
    return whole, with_times(evidences, (folder / f"{STEM}-times.npz.xz").read_bytes())


def scored(stored: Stored, evidence: Evidence) -> Scored:
    return as_scored(stored, answer(evidence))


def as_scored(stored: Stored, answered: Answer) -> Scored:
    """Join an answer with the true deviations: zero for a clean window, else by the references."""
    window, of = stored.window, stored.window.disturbance
    is_clean = window.is_reference
    deviation = dict.fromkeys(data.NUMBERS, 0.0) if is_clean else stored.deviation or {}
    kept = replace(answered, bounds={name: bound for name, bound in answered.bounds.items() if name in deviation})
    row = Row(
        seed=window.number,
        family=of.family if of is not None else CLEAN if is_clean else STALLED,
        clean=is_clean,
        workload=window.work,
        variant=window.mode,
        length_s=window.window_s,
        truth=deviation,
        answer=kept,
    )
    return Scored(
        row=row,
        card=stored.card,
        date=stored.date,
        is_capped=window.is_capped,
        throughout=of is not None and of.throughout,
        has_truth=is_clean or stored.deviation is not None,
        references_differ=stored.references_differ,
        words=of.kind if of is not None else "",
    )


def judge_all(folder: Path = TRACES) -> None:
    """Judge every stored window and write the answers in the same order."""
    whole, evidences = read(folder)
    lines = []
    for i, (_, evidence) in enumerate(zip(whole.windows, evidences, strict=True)):
        lines.append(json.dumps(_to_data(answer(evidence)), separators=(",", ":")))
        if (i + 1) % 20 == 0:
            print(f"{i + 1} of {len(evidences)} judged", flush=True)
    head = f'"judge": "{__version__}", "date": "{time.strftime("%Y-%m-%d")}"'
    text = f'{{{head}, "answers": [\n' + ",\n".join(lines) + "\n]}\n"
    (folder / f"{STEM}-results.json").write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Judged:
    """The committed windows with the committed answers, and the judge's version and date."""

    whole: Whole
    scored: list[Scored]
    judge: str
    date: str


def load(folder: Path = TRACES) -> Judged | None:
    """Return the committed results, or None without any."""
    path = folder / f"{STEM}-results.json"
    if not path.exists():
        return None
    whole = msgspec.json.decode(lzma.decompress((folder / f"{STEM}.json.xz").read_bytes()), type=Whole)
    results = json.loads(path.read_text(encoding="utf-8"))
    answers = map(_from_data, results["answers"])
    scored_ = [
        replace(as_scored(stored, each), apart_ratio=_apart(stored, whole.windows))
        for stored, each in zip(whole.windows, answers, strict=True)
    ]
    return Judged(whole, scored_, results["judge"], results["date"])


def _apart(of: Stored, stored: Sequence[Stored]) -> float | None:
    """Return a clean window's ``Scored.apart_ratio``; None for another window, or without another clean one."""
    others_hz = [
        each.window.rate_hz
        for each in stored
        if each is not of and each.call == of.call and each.window.work == of.window.work and each.window.is_reference
    ]
    return of.window.rate_hz / statistics.median(others_hz) - 1.0 if of.window.is_reference and others_hz else None


def _to_data(of: Answer) -> dict[str, Any]:
    bounds = {name: min(round(bound, _DIGITS), _UNBOUNDED) for name, bound in of.bounds.items()}
    repeats = {name: round(ratio, _DIGITS) for name, ratio in of.repeatability.items()}
    return {"bounds": bounds, "repeatability": repeats, "status": of.status, "named": sorted(of.named)}


def _from_data(of: Mapping[str, Any]) -> Answer:
    bounds = {name: math.inf if bound >= _UNBOUNDED else bound for name, bound in of["bounds"].items()}
    return Answer(bounds=bounds, repeatability=of["repeatability"], status=of["status"], named=frozenset(of["named"]))


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["add"]:
        add(run for folder in arguments[1:] for run in read_runs(Path(folder)))
    elif list(arguments) != ["judge"]:
        print(__doc__)
        return 2
    judge_all()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
