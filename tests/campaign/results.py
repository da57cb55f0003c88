"""The counts of a campaign as a committed file: further seeds add counts, and a changed judge starts a new file."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import annotate
from tests.rate_bounds import clopper_pearson

FILE = Path(__file__).with_name("results.json")


@dataclass(frozen=True, slots=True)
class Rate:
    """A count of hits in trials, with its Clopper-Pearson interval."""

    hits: int
    trials: int

    @property
    def ratio(self) -> float:
        return self.hits / self.trials if self.trials else float("nan")

    @property
    def bounds(self) -> tuple[float, float]:
        return clopper_pearson(self.hits, self.trials) if self.trials else (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Results:
    """Counts, their seeds, and the measured judge."""

    judge: str
    seeds: frozenset[int] = frozenset()
    counts: Mapping[str, int] = field(default_factory=dict)
    recorded: Mapping[str, int] = field(default_factory=dict)

    def plus(self, seeds: Iterable[int], counts: Mapping[str, int], recorded: Mapping[str, int] | None = None) -> Results:
        """Return the results with more seeds.  Raises ValueError: when a seed was counted already."""
        more = frozenset(seeds)
        if again := more & self.seeds:
            raise ValueError(f"expected new seeds, found seed {min(again)} again; remove it from the run")
        added = Counter(self.counts)
        added.update(counts)
        return Results(self.judge, self.seeds | more, dict(added), recorded or self.recorded)

    def rate(self, path: str, what: str, *, recorded: bool = False) -> Rate:
        counts = self.recorded if recorded else self.counts
        return Rate(counts.get(f"{path}/{what}", 0), counts.get(f"{path}/windows", 0))

    def missed(self, path: str, what: str = "caught") -> Rate:
        caught = self.rate(path, what)
        return Rate(caught.trials - caught.hits, caught.trials)

    def names(self, prefix: str, *, recorded: bool = False) -> list[str]:
        """Return the second parts of all paths that begin with this prefix."""
        counts = self.recorded if recorded else self.counts
        return sorted({path.split("/")[1] for path in counts if path.startswith(f"{prefix}/")})


def judge_digest() -> str:
    """Return a digest of the judge's source, because counts of two judges must not be added."""
    digest = hashlib.sha256()
    root = Path(annotate.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def load(path: Path = FILE) -> Results:
    """Read the file.  Raises OSError, ValueError or KeyError: when it is missing, not JSON, or incomplete."""
    data = json.loads(path.read_text())
    seeds = frozenset(seed for first, last in data["seeds"] for seed in range(first, last + 1))
    return Results(data["judge"], seeds, data["counts"], data["recorded"])


def save(results: Results, path: Path = FILE) -> None:
    data = {
        "judge": results.judge,
        "seeds": _ranges(results.seeds),
        "counts": dict(sorted(results.counts.items())),
        "recorded": dict(sorted(results.recorded.items())),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=0) + "\n")


def _ranges(seeds: Iterable[int]) -> list[list[int]]:
    out: list[list[int]] = []
    for seed in sorted(seeds):
        if out and seed == out[-1][1] + 1:
            out[-1][1] = seed
        else:
            out.append([seed, seed])
    return out
