"""HTML page of a comparison: one file that needs no network, in the style of `gpuwatch report`."""

from collections.abc import Sequence
from functools import cache
from itertools import zip_longest
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from annotate.output.report import plain
from gpuwatch.diff.code_line import unified
from gpuwatch.diff.explained_pair import ExplainedPair
from gpuwatch.diff.kernel_counters import METRICS
from gpuwatch.diff.render_diff import CAVEAT, instruction_cells, resource_cells
from gpuwatch.diff.render_timed import SIMULATED, conditions, decision_line, own_clock_lines, row_groups
from gpuwatch.diff.run_diff import Diff
from gpuwatch.diff.static_comparison import StaticComparison
from gpuwatch.report.html_page import packed_plotly
from gpuwatch.report.record import as_json

_MOST_CLASSES = 14  # instruction classes in the chart; the table has all that differ


def render_page(found: Diff, nonce: str) -> str:
    """Return the page of a comparison."""
    shown = [_shown(static, pair) for static, pair in zip_longest(found.comparisons, found.explained)]
    html: str = _template().render(
        nonce=nonce,
        title=f"{found.a.shown} → {found.b.shown}",
        simulated=SIMULATED if any(each.is_simulated for each in found.explained) else "",
        found=found,
        shown=shown,
        caveat=CAVEAT,
        plots=as_json([plot for each in shown for plot in each["plots"]]),
        plotly=packed_plotly(),
    )
    return html


def _shown(static: StaticComparison | None, pair: ExplainedPair | None) -> dict[str, Any]:
    return {
        **(_shown_code(static) if static is not None else {"names": [], "resources": [], "instructions": [], "sass": []}),
        "pair": pair,
        "groups": row_groups(pair) if pair else {},
        "plots": [*(_timed_plots(pair) if pair else []), *([_classes(static)] if static else [])],
    }


def _shown_code(static: StaticComparison) -> dict[str, Any]:
    a, b = static.a.code, static.b.code
    return {
        "names": list(dict.fromkeys((a.signature, b.signature))),
        "resources": [resource_cells(row) for row in static.resources if row.differs or row.a],
        "instructions": [instruction_cells(row) for row in static.sass or static.ptx if row.differs],
        "sass": list(unified(a.sass, b.sass, (f"A {a.name}", f"B {b.name}"))),
    }


def _timed_plots(pair: ExplainedPair) -> list[dict[str, Any]]:
    plots: list[dict[str, Any]] = []
    timed = pair.timed
    if timed.ratio and timed.ratio_low and timed.ratio_high:
        title = "A's time / B's time; above 1, B is faster"
        ends = [timed.ratio - timed.ratio_low, timed.ratio_high - timed.ratio]
        plots.append({"kind": "ratio", "title": title, "ratio": timed.ratio, "ends": ends})
    if pair.a and pair.b and pair.peaks:
        # The arithmetic roof is that of the type with the most operations.
        sides = [{"x": each.intensity, "y": each.flops_a_second, "roof": each.peak_flops_a_second} for each in (pair.a, pair.b)]
        if all(side["x"] and side["y"] for side in sides):
            title, memory = f"Roofline at the {pair.peak_clock}", pair.peaks.memory_bytes
            plots.append({"kind": "roofline", "title": title, "sides": sides, "memory": memory})
    both = pair.counters.a.keys() & pair.counters.b.keys()
    shares = [metric for metric in METRICS if metric.is_share and metric.name in both]
    named = [metric.title for metric in shares]
    values = [[100 * (pair.counters.mean(side, metric.name) or 0.0) for metric in shares] for side in ("a", "b")]
    return [*plots, *([_bars("Counters", "%", named, values)] if shares else [])]


def _classes(static: StaticComparison) -> dict[str, Any]:
    found = [row for row in static.sass or static.ptx if row.differs][:_MOST_CLASSES]
    names = [f"{row.kind}{' in a loop' if row.loop_depth else ''}" for row in found]
    return _bars("Instructions that differ", "instructions", names, [[row.a for row in found], [row.b for row in found]])


def _bars(title: str, unit: str, names: list[str], values: Sequence[Sequence[float]]) -> dict[str, Any]:
    return {"kind": "bars", "title": title, "unit": unit, "names": names, "values": values}


@cache
def _template() -> Any:  # a jinja2.Template
    loader = ChoiceLoader([PackageLoader("gpuwatch.diff"), PackageLoader("gpuwatch.report")])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["plain"] = lambda text: plain(str(text))
    environment.globals |= {"conditions": conditions, "decision": decision_line, "own_clock": own_clock_lines}
    return environment.get_template("diff.html.j2")
