"""The campaign's results as fixtures and pages, with masked identities.

python -m tests.hardware.render CAMPAIGN_FOLDER    data and fixtures from a campaign's output, then the pages
python -m tests.hardware.render                    the pages again from the committed data; --check only compares
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from annotate.capsule.pack import pack, unpack
from annotate.evidence import Evidence
from annotate.judge import judge
from annotate.output import report
from annotate.verdict import Verdict
from gpuwatch.sources.recordings import load
from tests.campaign import render as campaign
from tests.hardware import essays_page, merged, other_decisions, paired_page, targets_page
from tests.proof import published

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "tests" / "traces"
CAPSULE = TRACES / "h200-windows.capsule"
DATA = TRACES / "h200-windows.json"
LOG = TRACES / "h200-nvidia-smi.csv"
TWO = TRACES / "h200-two-gpus.json"
PAGE = ROOT / "docs" / "VALIDATION.md"
README = ROOT / "README.md"

MASKED_UUID = "GPU-00000000-0000-0000-0000-000000000200"
LOGGED = ("steady-gemm-4096", "from-idle-gemm-4096-1s", "sleeps-100ms-gemm-16384")
_SHOWN, _COLUMNS = "neighbour-gemm-4096", 110  # the README's verdict, and its width in a terminal


def masked(evidence: Evidence) -> Evidence:
    """Return the same evidence with an anonymous GPU and host."""
    assert evidence.device is not None
    host = replace(evidence.host, boot_id="boot", hostname="host")
    process_lists = tuple(replace(process_list, uuid=MASKED_UUID) for process_list in evidence.trace.process_lists)
    declared = {name: MASKED_UUID if name == "cuda_uuids" else fact for name, fact in evidence.declared.items()}
    return replace(
        evidence,
        device=replace(evidence.device, uuid=MASKED_UUID),
        host=host,
        declared=declared,
        trace=replace(evidence.trace, process_lists=process_lists),
    )


def take(folder: Path) -> None:
    """Convert a campaign's output to committed data."""
    data = json.loads((folder / "h200.json").read_text())
    evidence = [masked(each) for each in unpack((folder / "h200.capsule").read_bytes())]
    rows = data["rows"]
    CAPSULE.write_bytes(pack(evidence))
    log = (folder / "smi.csv").read_text().splitlines()
    spans = {row["scenario"]: (row["wall_begin_s"], row["wall_end_s"]) for row in rows if "wall_begin_s" in row}
    whole = load(folder / "smi.csv")[0].trace
    kept = {
        "date": data["date"], "torch": data["torch"], "driver": evidence[0].device.driver_version if evidence[0].device else None,
        "card": evidence[0].device.name if evidence[0].device else None, "figures": _anonymous(data["figures"]),
        "scenarios": [
            {
                "name": row["scenario"], "expected": row["expected"], "enter_ms": row.get("enter_ms"), "exit_ms": row.get("exit_ms"),
                "wall_s": spans.get(row["scenario"]), "smi": _smi(whole, spans.get(row["scenario"])),
            }
            for row in rows
        ],
    }  # fmt: skip
    DATA.write_text(json.dumps(kept, indent=1) + "\n")
    # The parts of the log around three windows: a steady one, and two with hazards that the log shows.
    lines = [log[0]]
    for name in LOGGED:
        begin_s, end_s = spans[name]
        lines += [line for line in log[1:] if begin_s - 4.0 <= _wall_s(line) <= end_s + 0.5]
    LOG.write_text(re.sub(r"GPU-[0-9a-f-]{36}", MASKED_UUID, "\n".join(lines)) + "\n")


def _anonymous(figures: dict[str, Any]) -> dict[str, Any]:
    for figure in figures["daemon"].values():
        for gpu in figure["gpus"]:
            gpu["uuid"] = MASKED_UUID
    return figures


def _wall_s(line: str) -> float:
    from datetime import datetime

    try:
        stamp = line.split(",", 1)[0]
        return datetime.strptime(stamp, "%Y/%m/%d %H:%M:%S.%f").timestamp()  # noqa: DTZ007 - nvidia-smi writes local time
    except ValueError:
        return 0.0


def _smi(trace: Any, span_s: tuple[float, float] | None) -> dict[str, Any] | None:  # a Trace on the wall clock
    """Return a summary of the nvidia-smi log over a span, or None without a span or readings."""
    if span_s is None:
        return None
    begin_ns, end_ns = (int(edge * 1e9) for edge in span_s)
    clock, utilization, mask = (
        trace.within(name, begin_ns, end_ns).values for name in ("sm_clock_mhz", "utilization_ratio", "event_reasons_mask")
    )
    if not len(clock) or np.isnan(clock).all():
        return None
    reasons = sorted({int(each) for each in mask[~np.isnan(mask)]})
    return {
        "clock_mhz": [float(np.nanmin(clock)), float(np.nanmedian(clock)), float(np.nanmax(clock))],
        "utilization_ratio": float(np.nanmean(utilization)) if not np.isnan(utilization).all() else None,
        "reasons": [f"{each:#x}" for each in reasons],
    }


@cache
def judged() -> tuple[tuple[dict[str, Any], Evidence, Verdict], ...]:
    """Return each committed scenario, its evidence, and the verdict of the present rules."""
    scenarios = json.loads(DATA.read_text())["scenarios"]
    pieces = zip(scenarios, unpack(CAPSULE.read_bytes()), strict=True)
    return tuple((scenario, evidence, judge(evidence)) for scenario, evidence in pieces)


def page() -> str:
    data = json.loads(DATA.read_text())
    out = [
        "# Validation on real work\n",
        f"Generated by `python -m tests.hardware.render` from `tests/traces/h200-windows.*`: one {data['card']}, driver",
        f"{data['driver']}, torch {data['torch']}, {data['date']}.  The evidence was recorded by the daemon while",
        "`tests/hardware/campaign.py` ran (`make gpu`).  The verdicts are by the present rules, and a test compares each verdict with the",
        "expected one.  No setting of the card was changed.\n",
        *targets_page.section(),
        "## Verdicts\n",
        "| scenario | expected | verdict | hazards | SM clock MHz min/median/max | capped | utilisation | power W | `nvidia-smi` alone |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for scenario, evidence, verdict in judged():
        hazards = ", ".join(f"{h.rule} ({h.severity})" for h in verdict.hazards) or "–"
        out.append(
            f"| {scenario['name']} | {scenario['expected']['status'].replace('|', ' or ')} | **{verdict.status.value}** | {hazards} | "
            f"{_three(evidence, 'sm_clock_mhz')} | {_capped(evidence)} | {_mean(evidence, 'utilization_ratio', '{:.0%}')} | "
            f"{_mean(evidence, 'power_w', '{:.0f}')} | {_shown(scenario['smi'])} |"
        )
    out += [
        "",
        "`plain-run` is `gpuwatch run -- python bench.py` of an earlier version, on a program without gpuwatch; the window contains the",
        "program's imports.  The present version judges `run` from the first to the last work on the GPU, warm-up included.",
        "None of these windows has times of iterations.  Without times, regular idle time, as by sleeps of 100 ms, is a label of the number",
        "(`the GPU was busy 10% of the time`) and not a disturbance, unless the rhythm slows, as with hogs.\n",
        "### In words\n",
    ]
    for scenario, _, verdict in judged():
        out += ["```text", report.text(verdict), "```", ""]
        del scenario
    out += [
        "## From an `nvidia-smi` log alone\n",
        "`gpuwatch audit --trace FILE` judges a log of `nvidia-smi --query-gpu=… --format=csv -lms 20`, recorded during three of these",
        "windows (`tests/traces/h200-nvidia-smi.csv`).  A log has no process list, so no window can be proven; hazards in the log are",
        "still found.\n",
        "| window | verdict | hazards |",
        "|---|---|---|",
    ]
    for name, verdict in from_log():
        hazards = ", ".join(f"{h.rule} ({h.severity})" for h in verdict.hazards) or "–"
        out.append(f"| {name} | {verdict.status.value} | {hazards} |")
    two = json.loads(TWO.read_text())
    out += [
        "",
        "## Two GPUs\n",
        f"On a machine with {two['gpus']} GPUs ({two['date']}): copies in a process with one visible GPU (`CUDA_VISIBLE_DEVICES`).  During",
        "the last two rows, another process added vectors on the second GPU.\n",
        "| window | GPU, in the driver's order | verdict | hazards |",
        "|---|---|---|---|",
        *(
            f"| {row['window']} | {row['gpu']} | {row['status']} | {', '.join(row['hazards']) or '–'} |"
            for row in two["windows"]
        ),
        "",
        "## Costs\n",
        *_costs(data["figures"]),
        "",
        *merged.page(),
        *essays_page.section(),
        *essays_page.of_cards(),
        *essays_page.of_programs(),
        *campaign.section(),
        *published.section(),
        *paired_page.section(),
        *other_decisions.section(),
    ]
    return "\n".join(out).rstrip() + "\n"


def from_log() -> Iterator[tuple[str, Verdict]]:
    """Yield the logged windows, judged by the log alone."""
    (whole,) = load(LOG)
    spans = {scenario["name"]: scenario["wall_s"] for scenario in json.loads(DATA.read_text())["scenarios"]}
    for name in LOGGED:
        begin_s, end_s = spans[name]
        yield name, judge(whole.part(int(begin_s * 1e9), int(end_s * 1e9)))


def _costs(figures: dict[str, Any]) -> list[str]:
    rows = [
        "The daemon of the first campaign, which read the driver in Python (present daemon: [BENCHMARKS](BENCHMARKS.md#effect-on-the-watched-work)),",
        "on one GPU under a GEMM loop, one minute each.  The share of one core is that of the whole process (sampling, storing, serving);",
        "lateness and rates are those of the last minute.\n",
        "| | 20 Hz, no window | 100 Hz, window open |",
        "|---|---|---|",
    ]
    idle, active = figures["daemon"]["20hz"], figures["daemon"]["100hz"]

    def both(label: str, tell: Any) -> None:
        rows.append(f"| {label} | {tell(idle)} | {tell(active)} |")

    both("CPU time", lambda f: f"{f['cpu_ratio']:.2%} of a core")
    both("of which fast-lane thread, slow-lane thread", lambda f: f"{f['threads'][0]:.2%}, {f['threads'][1]:.2%}")
    both("rows stored per second", lambda f: f"{f['rows_a_second']:.0f}")
    if idle.get("stored_bytes_a_minute"):
        both("bytes stored per minute", lambda f: f"{f['stored_bytes_a_minute'] / 1e3:.0f} kB")
    both("fast lane, achieved", lambda f: f"{f['gpus'][0]['questions']['fast']['rate_hz']:.1f} Hz")
    both(
        "late, p50 / p99",
        lambda f: " / ".join(f"{f['gpus'][0]['questions']['fast'][k] / 1e6:.2f} ms" for k in ("late_p50_ns", "late_p99_ns")),
    )
    both("memory", lambda f: f"{f['rss_bytes'] / 1e6:.0f} MB")
    window, row = figures["window"], figures["fast_row"]
    return [
        *rows,
        "",
        f"An empty `window()`, 200 times, with torch's context and a running daemon: enter {window['enter_p50_ms']:.2f} ms (p99 "
        f"{window['enter_p99_ms']:.1f}), exit {window['exit_p50_ms']:.2f} ms (p99 {window['exit_p99_ms']:.1f}).  A call costs more after "
        f"a pause than in a tight loop: the fast lane's {row['signals_count']} signals took {row['back_to_back_us']:.0f} µs back to back, "
        f"{row['at_100hz_us']:.0f} µs per pass at 100 Hz and {row['at_20hz_us']:.0f} µs at 20 Hz.",
    ]


def _three(evidence: Evidence, name: str) -> str:
    values = evidence.within(name).values
    return (
        "–"
        if not len(values) or np.isnan(values).all()
        else "/".join(f"{f(values):.0f}" for f in (np.nanmin, np.nanmedian, np.nanmax))
    )


def _mean(evidence: Evidence, name: str, form: str) -> str:
    values = evidence.within(name).values
    return "–" if not len(values) or np.isnan(values).all() else form.format(np.nanmean(values))


def _capped(evidence: Evidence) -> str:
    rise = evidence.increase("power_violation_ns") or evidence.increase("power_cap_ns")
    return f"{min(1.0, rise.ratio):.0%}" if rise else "–"


def _shown(smi: dict[str, Any] | None) -> str:
    if smi is None:
        return "–"
    clock = "/".join(f"{each:.0f}" for each in smi["clock_mhz"])
    busy = f"{smi['utilization_ratio']:.0%}" if smi["utilization_ratio"] is not None else "–"
    return f"{clock} MHz, {busy}, reasons {' '.join(smi['reasons'])}"


def readme() -> str:
    """Return README.md with the verdict of one real window between the markers."""
    text = next(report.text(verdict, width=_COLUMNS) for scenario, _, verdict in judged() if scenario["name"] == _SHOWN)
    block = f"```text\n{text}\n```"
    return re.sub(
        r"(<!-- verdict:.*?-->\n).*?(<!-- /verdict -->)", lambda m: f"{m[1]}{block}\n{m[2]}", README.read_text(), flags=re.S
    )


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] != "--check":
        take(Path(arguments[0]))
    made = {PAGE: page(), README: readme()}
    if "--check" in arguments:
        stale = [path.name for path, text in made.items() if path.read_text() != text]
        if stale:
            print(f"stale: {', '.join(stale)}; run: make pages")
        return bool(stale)
    for path, text in made.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
