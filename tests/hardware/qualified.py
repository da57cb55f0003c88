"""Real GPUs after `gpuwatch selftest --qualify`: committed data, the shipped reference, and a table in docs/FLEET.md.

    python -m tests.hardware.qualified add FOLDER…      adds results of `qualify` runs: *.json of --save-reference or --json
    python -m tests.hardware.qualified [--check]        writes the table, or compares it

The first clean run with every number on a card becomes the shipped reference; the card's other runs show its repeatability.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import msgspec

from gpuwatch.comparing.qualification import SCHEMA, SHIPPED, Qualification
from gpuwatch.comparing.qualify_decision import PROBES, QualifyDecision, decide, move_to_clock

ROOT = Path(__file__).parents[2]
DATA, PAGE = ROOT / "tests" / "traces" / "qualified.json", ROOT / "docs" / "FLEET.md"
_BEGIN, _END = "<!-- qualified: python -m tests.hardware.qualified -->\n", "<!-- /qualified -->"


@cache
def runs() -> tuple[Qualification, ...]:
    """Return every committed run, in order of time."""
    found = msgspec.convert(json.loads(DATA.read_bytes())["runs"], list[Qualification])
    return tuple(sorted(found, key=lambda run: run.measured_wall_s))


def reference(every: Sequence[Qualification]) -> tuple[Qualification, ...]:
    """Return each card's first clean run with every number."""
    whole = [run for run in every if run.is_clean and all(probe.name in run.amounts for probe in PROBES)]
    return tuple({run.device.uuid: run for run in reversed(whole)}.values())[::-1]


def add(folders: Sequence[Path]) -> None:
    """Add the runs in these folders to the data file, and rewrite the shipped references."""
    before = [run.without_uuids() for run in runs()] if DATA.exists() else []
    known = {(run.card_key, run.measured_wall_s) for run in before}
    for folder in folders:
        for file in sorted(folder.glob("*.json")):
            data = json.loads(file.read_bytes())
            for fields in data.get("cards", [data["qualification"]] if "qualification" in data else []):
                run = msgspec.convert(fields, Qualification).without_uuids()
                if (run.card_key, run.measured_wall_s) not in known:
                    before.append(run)
    _write(DATA, {"schema": SCHEMA, "runs": sorted(before, key=lambda run: run.measured_wall_s)})
    runs.cache_clear()
    cards = reference(runs())
    for model in {card.device.name for card in cards}:
        of_model = [card for card in cards if card.device.name == model]
        _write(SHIPPED / f"{model.lower().replace(' ', '-')}.json", {"schema": SCHEMA, "cards": of_model})


def _write(path: Path, data: dict[str, object]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(msgspec.to_builtins(data), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def table() -> Iterator[str]:
    """Yield the lines of the cards, their numbers, and each card against the others."""
    cards = reference(runs())
    yield "| Card | Date | Driver, library | " + " | ".join(probe.title for probe in PROBES) + " | Against the others |"
    yield "|---|---|---|" + "---|" * len(PROBES) + "---|"
    for card in cards:
        day = datetime.fromtimestamp(card.measured_wall_s, UTC).date().isoformat()
        numbers = " | ".join(_number(card, probe.name) for probe in PROBES)
        others = [each for each in cards if each is not card]
        answer = _answer(decide(card, others)) if others else "no other card"
        software = f"{card.device.driver_version}, {card.software.get('gemm', 'none')}"
        yield f"| `{card.device.uuid}` | {day} | {software} | {numbers} | {answer} |"
    spreads = " | ".join(f"{_spread_ratio(cards, probe.name):.2%}" for probe in PROBES)
    yield f"| largest / smallest − 1 | | | {spreads} | |"
    new = replace(cards[0], device=replace(cards[0].device, uuid="new"))
    bands = {each.probe.name: each.band_ratio for each in decide(new, cards).probes}
    yield f"| 99 % of further cards lie within | | | {' | '.join(f'±{bands[probe.name]:.2%}' for probe in PROBES)} | |"
    yield ""
    yield from _repeats(cards)


def _number(card: Qualification, name: str) -> str:
    amount = card.amounts[name]
    half = "" if amount.half_ratio is None else f" ±{amount.half_ratio:.2%}"
    if name.endswith("_mhz"):
        return f"{amount.value:.1f} MHz{half}"
    at = f" at {amount.clock_mhz:.0f} MHz" if name == "gemm_at_clock_s" and amount.clock_mhz else ""
    return f"{amount.value * 1e6:.2f} µs{half}{at}"


def _answer(decision: QualifyDecision) -> str:
    unlike = [f"{each.probe.title} {each.interval}" for each in decision.probes if each.likeness.value != "alike"]
    return "; ".join([decision.comparable.value, *unlike])


def _spread_ratio(cards: Sequence[Qualification], name: str) -> float:
    clock_mhz = cards[0].amounts[name].clock_mhz
    values = [move_to_clock(card.amounts[name], clock_mhz).value for card in cards]
    return max(values) / min(values) - 1.0


def _repeats(cards: Sequence[Qualification]) -> Iterator[str]:
    """Yield the largest deviations of a card's other runs from the shipped reference."""
    first = {card.device.uuid: card for card in cards}
    apart: dict[str, list[float]] = {probe.name: [] for probe in PROBES}
    for run in runs():
        before = first.get(run.device.uuid)
        for name, amount in run.amounts.items() if before is not None and before is not run else ():
            assert before is not None
            then = before.amounts[name]
            apart[name].append(abs(move_to_clock(amount, then.clock_mhz).value / then.value - 1.0))
    words = ", ".join(f"{probe.title} {max(apart[probe.name]):.2%}" for probe in PROBES if apart[probe.name])
    count = sum(run.device.uuid in first for run in runs()) - len(first)
    if count:
        yield f"{count} further runs on these cards, minutes later or without torch, deviated from the card's first run by at most: {words}."


def written(text: str) -> str:
    before, _, rest = text.partition(_BEGIN)
    return before + _BEGIN + "\n".join(table()) + "\n" + _END + rest.partition(_END)[2]


def main(arguments: Sequence[str]) -> int:
    """Add runs, write the table, or with ``--check`` compare the table; return 0 or 1."""
    if arguments[:1] == ["add"]:
        add([Path(each) for each in arguments[1:]])
        return 0
    text = PAGE.read_text(encoding="utf-8")
    if "--check" not in arguments:
        PAGE.write_text(written(text), encoding="utf-8")
    elif written(text) != text:
        sys.stderr.write(f"the table of qualified cards in {PAGE} is stale; run make pages\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
