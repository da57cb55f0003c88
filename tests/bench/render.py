"""docs/BENCHMARKS.md and the README's cost figures, from committed data.

python -m tests.bench.render            writes both; --check only compares
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench import saved, targets
from tests.bench.saved import Saved
from tests.bench.targets import Data

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "BENCHMARKS.md"
README = ROOT / "README.md"
BLOCK = re.compile(r"(<!-- costs[^>]*-->\n).*?(<!-- /costs -->)", re.DOTALL)


def page(found: Data) -> str:
    out = [
        "# Measured costs of gpuwatch\n",
        "`python -m tests.bench.render` generates this page from `tests/bench/results.json`, `tests/faults/results.json` and the results of",
        "real GPUs in `tests/traces`.  `make bench` runs all benchmarks; `python -m tests.bench --save [NAME …]` also stores their",
        "results.  Each benchmark has its date, machine and versions.  Load is the one-minute load average.  A benchmark's machine is marked",
        "as shared when the load at the start exceeded half its processors; timings of a shared machine are upper bounds.\n",
        "## Targets\n",
        *targets.as_rows(found),
        "",
        *_watched(found),
        "## Tables\n",
        "The mock driver, *the double* in the tables, is a library with the driver's ABI (`tests/fake_nvml/`).  Its calls compute for about",
        "the CPU time of the same calls on an H200, but are free in `watching`.  The measured programs load it unmodified.  A mock driver cannot show the effect of watching on GPU work.\n",
    ]
    for name, kept in sorted(found.benches.items()):
        out += _table(name, kept)
    return "\n".join(out).rstrip() + "\n"


def _watched(found: Data) -> Iterator[str]:
    yield "## Effect on the watched work\n"
    if not found.effect:
        yield "Not measured yet: `python -m tests.hardware.effect` on a machine with a GPU.\n"
        return
    first = next(iter(found.effect.values()))
    gpus_count = max(row.get("gpus_count") or 1 for row in found.effect.values())
    yield (
        f"One {first['gpu']}, {first['date']}, `tests/hardware/effect.py`: the same work without a watcher, with gpuwatch and with other watchers,"
        f" {first['rounds_count']} rounds in random order.  A turn is half a second of an fp32 GEMM, which no power limit slows, and 20 000"
        f" launches timed one by one.  Changes are relative to the turns without a watcher: medians over rounds, with 95 % intervals."
        f"  CPU is the share of a core over ten seconds in which no other watcher ran, with {gpus_count} GPUs watched and the start excluded.  {_versions(first)}\n"
    )
    yield "| watcher | CPU | MB | GEMM | launch p50 µs | p99 µs | p99.9 µs |"
    yield "|---|---|---|---|---|---|---|"
    for name, row in found.effect.items():
        cpu, memory = (
            ("–", "–") if row["cpu_ratio"] is None else (f"{row['cpu_ratio']:.2%}", f"{row['memory_bytes'] / 1e6:.0f}")
        )
        yield f"| {name} | {cpu} | {memory} | {_changes(row)} |"
    yield ""


def _versions(row: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in row.get("versions", {}).items())
    return f"With {versions}." if versions else ""


def _changes(row: dict[str, Any]) -> str:
    """Format a watcher's changes against the turns without a watcher; for those turns, the absolute values."""
    if row["cpu_ratio"] is None:
        return " | ".join([f"{row['gemm_s'] * 1e3:.3f} ms", *(f"{each * 1e6:.2f}" for each in row["launch_s"])])
    middle, low, high = row["gemm_change_ratio"]
    cells = [f"{middle:+.3%} ({low:+.3%} to {high:+.3%})"]
    cells += [f"{a * 1e6:+.2f} ({b * 1e6:+.2f} to {c * 1e6:+.2f})" for a, b, c in row["launch_change_s"]]
    return " | ".join(cells)


def _table(name: str, found: Saved) -> list[str]:
    shared = " (**shared with other work**)" if found.is_shared else ""
    versions = ", ".join(f"{what} {version}" for what, version in found.versions.items())
    return [
        f"### {name}\n",
        f"`python -m tests.bench {name}`: {_about(name)}\n",
        f"{found.date}, {found.took_s:.0f} s; {found.machine}; load {found.load_begin:g} at the start{shared}, {found.load_end:g}",
        f"at the end; {versions}.\n",
        "```text", found.table, "```\n",
    ]  # fmt: skip


def _about(name: str) -> str:
    """Return the first paragraph of the module's docstring."""
    text = re.search(r'"""(.*?)(?:"""|\n\n)', (saved.HERE / f"bench_{name}.py").read_text(), re.DOTALL)
    return " ".join(text.group(1).split()) if text else ""


def costs(found: Data) -> str:
    """Return the README's block: a table of the headline figures, and their source."""
    figures = found.benches["peers"].figures if "peers" in found.benches else {}
    lines = ["| watching busy GPUs | CPU, 1 GPU | 8 GPUs | memory | readings a second, 8 GPUs |", "|---|---|---|---|---|"]
    for name, key in (
        ("gpuwatch, stored and scraped", "20hz_scraped_{}"), ("… while a window is open", "100hz_scraped_{}"),
        ("nvitop's API, 10 Hz requested", "nvitop_{}"), ("gpustat, 10 Hz requested", "gpustat_{}"),
        ("Zeus's PowerMonitor, power only", "zeus_{}"),
    ):  # fmt: skip
        one, eight, memory, hz = (
            figures.get(key.format(f"{each}")) for each in ("1_cpu_ratio", "8_cpu_ratio", "8_memory_bytes", "8_rate_hz")
        )
        if one is not None and eight is not None and memory is not None:
            rate = (f"{hz:.0f}" if hz >= 10 else f"{hz:.1f}") if hz else "10"
            rate += " of clock and reasons, 20 of all" if key.startswith("100hz") else ""
            lines.append(f"| {name} | {one:.1%} of a core | {eight:.1%} | {memory / 1e6:.0f} MB | {rate} |")
    lines.append("")
    if "gpuwatch_1_enter_ms" in figures:
        ours, theirs = (
            " and ".join(f"{figures[f'{who}_1_{edge}_ms']:.1f}" for edge in ("enter", "exit")) for who in ("gpuwatch", "zeus")
        )
        lines.append(f"`window()` takes {ours} ms to enter and leave; Zeus's window takes {theirs} ms.")
    watched = [row for name, row in found.effect.items() if name.startswith(("gpuwatch", "the same"))]
    if watched:
        gemm = max(row["gemm_change_ratio"][0] for row in watched)
        late, low, high = max(row["launch_change_s"][2] for row in watched)
        lines.append(
            f"Effect of watching on a benchmark, on an {watched[0]['gpu']}: GEMM {gemm:+.3%}, kernel launches p99.9 {late * 1e6:+.1f} µs"
            f" ({low * 1e6:+.1f} to {high * 1e6:+.1f}) at most."
        )
    lines.append("All figures, with machines, dates and targets: [docs/BENCHMARKS.md](docs/BENCHMARKS.md).")
    return "\n".join(lines) + "\n"


def rendered() -> dict[Path, str]:
    """Return the expected text of each generated file."""
    found = targets.data(saved.load())
    readme = README.read_text()
    return {PAGE: page(found), README: BLOCK.sub(lambda match: match[1] + costs(found) + match[2], readme)}


def write() -> None:
    for path, text in rendered().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def main(arguments: list[str]) -> int:
    if "--check" not in arguments:
        write()
        return 0
    stale = [path for path, text in rendered().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is stale: run `make pages`", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
