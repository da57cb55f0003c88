"""A comparison of code as one screen of text, and as Markdown for a pull request."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from annotate.output.markup import fenced, marked
from annotate.output.report import plain
from gpuwatch.diff.code_line import unified
from gpuwatch.diff.render_timed import Row, Table, headlines, sweep_lines, timed_lines
from gpuwatch.diff.run_diff import Diff
from gpuwatch.diff.static_comparison import InstructionRow, Language, ResourceRow, StaticComparison

_MOST_ROWS = 14  # differing instruction classes shown, so that the output fits one screen
_MOST_ROWS_TIMED = 6  # the same below times and counters
CAVEAT = (
    "Static counts are not dynamic counts: the number of executions of an instruction in a loop or behind a "
    "branch depends on the input data. A count with × is per iteration, summed over the kernel's loops of that depth."
)


class _Markup(str):
    """Lines that are Markdown already; all other lines are escaped."""

    __slots__ = ()


def as_text(found: Diff, code: Sequence[Language], *, is_whole: bool = False) -> str:
    """Return the comparison as text for a terminal; ``code`` adds unified diffs, ``is_whole`` all differing classes."""
    return "\n".join(_lines(found, code, _columns, is_whole=is_whole))


def as_markdown(found: Diff, code: Sequence[Language]) -> str:
    """Return the comparison as Markdown for a pull request."""
    return "\n".join(
        each if isinstance(each, _Markup) else "\n".join(marked(plain(line)) for line in each.split("\n"))
        for each in _lines(found, code, _pipes, is_whole=True)
    )


def _lines(found: Diff, code: Sequence[Language], table: Table, *, is_whole: bool) -> Iterator[str]:
    is_markdown = table is _pipes
    most = None if is_whole else _MOST_ROWS_TIMED if found.explained else _MOST_ROWS
    names = [marked(plain(each.shown)) for each in (found.a, found.b)]
    yield from ([_Markup(f"**{names[0]} → {names[1]}** on {found.arch}"), ""] if is_markdown else [])
    if found.explained:
        yield from _paragraph(headlines(found.explained, [each.b.code.name for each in found.comparisons] or [""]), table)
        yield ""
    named = zip("AB", (found.a, found.b), strict=True)
    sides = [(name, side.shown, side.compiled.compiler, " ".join(side.compiled.flags)) for name, side in named]
    yield table(("", "side", "compiler", "flags"), sides)
    yield from ([""] if is_markdown else [])
    yield from _flags_differ(found)
    yield from [] if found.explained else [f"not timed: {found.why_not_timed}"]
    yield from ["", *_paragraph(sweep_lines(found.sweep), table)] if found.sweep is not None else ()
    for each, pair in zip_longest(found.comparisons, found.explained):
        yield ""
        yield from _paragraph(timed_lines(pair, table), table) if pair is not None else ()
        if each is None:  # Python functions have no code
            continue
        yield from _kernel(each, table, most=most)
        for language in code:
            yield from _code(each, language, is_markdown=is_markdown)
    yield ""
    yield CAVEAT


def _paragraph(lines: Iterator[str], table: Table) -> Iterator[str]:
    for line in lines:
        yield from ([line, ""] if line else []) if table is _pipes else [line]


def _flags_differ(found: Diff) -> Iterator[str]:
    a, b = found.a.compiled, found.b.compiled
    only = [[flag for flag in one.flags if flag not in other.flags] for one, other in ((a, b), (b, a))]
    if any(only) and not a.parameters and not b.parameters:  # Triton lists argument types
        yield f"flags differ: A {' '.join(only[0]) or 'none'}; B {' '.join(only[1]) or 'none'}"
    if a.compiler != b.compiler:
        yield "compilers differ: differences below may be the compilers'"


def _kernel(found: StaticComparison, table: Table, *, most: int | None) -> Iterator[str]:
    a, b = found.a.code, found.b.code
    yield a.signature if a.signature == b.signature else f"A {a.signature}\nB {b.signature}"
    yield ""
    if found.is_same_code:
        yield from ("same code: the instructions of both kernels are the same", "")
    yield table(("", "A", "B", "change"), [resource_cells(row) for row in found.resources if row.differs or row.a])
    yield from _limits(found)
    for title, rows in (("SASS by class", found.sass), ("PTX by class", found.ptx)):
        differing = [instruction_cells(row) for row in rows if row.differs]
        # The GPU runs the SASS; --verbose, --ptx and --json show the PTX.
        if not differing or (title.startswith("PTX") and found.sass and most is not None):
            continue
        yield ""
        yield table((title, "loop depth", "A", "B", "change"), differing[:most])
        if most is not None and len(differing) > most:
            yield f"and {len(differing) - most} classes more that differ; --verbose lists them"


def _limits(found: StaticComparison) -> Iterator[str]:
    limits = [
        f"{name} {side.occupancy.limited_by} at {side.occupancy.block_threads} threads ({side.launches[0].because})"
        for name, side in (("A", found.a), ("B", found.b))
        if side.occupancy is not None
    ]
    if limits:
        yield f"occupancy is limited by: {'; '.join(limits)}"


def _code(found: StaticComparison, language: Language, *, is_markdown: bool) -> Iterator[str]:
    codes = [getattr(side.code, language) for side in (found.a, found.b)]
    names = (f"A {found.a.code.name}", f"B {found.b.code.name}")
    is_same = [line.exact for line in codes[0]] == [line.exact for line in codes[1]]
    none = f"no difference in {language.upper()}{'' if is_same else ' except in registers and addresses'}"
    lines = list(unified(codes[0], codes[1], names)) or [none]
    yield ""
    yield from map(_Markup, fenced([plain(line) for line in lines], "diff")) if is_markdown else [language.upper(), *lines]


def resource_cells(row: ResourceRow) -> Row:
    """Return the cells of one resource."""
    return row.name, _amount(row, row.a), _amount(row, row.b), _change(row)


def _amount(row: ResourceRow, value: float | None) -> str:
    if value is None:
        return "not known"
    if row.unit == "share":
        return f"{value:.1%}"
    return f"{value:,.0f}{' B' if row.unit == 'bytes' else ''}".replace(",", " ")


def _change(row: ResourceRow) -> str:
    if row.a is None or row.b is None or not row.differs:
        return ""
    if row.unit == "share":
        return f"{(row.b - row.a) * 100:+.1f} pp"  # percentage points: both are shares already
    share = f" ({row.b / row.a - 1:+.0%})" if row.a else ""
    return f"{row.b - row.a:+,.0f}{share}".replace(",", " ")


def instruction_cells(row: InstructionRow) -> Row:
    """Return the cells of one class of instructions."""
    mark = "×" if row.loop_depth else ""
    amounts = [f"{mark}{count}" if count else "0" for count in (row.a, row.b)]
    return row.kind, str(row.loop_depth) if row.loop_depth else "none", *amounts, f"{row.b - row.a:+d}"


def _columns(header: Row, rows: Sequence[Row]) -> str:
    lines = [header, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def _pipes(header: Row, rows: Sequence[Row]) -> str:
    first, *rest = ["| " + " | ".join(marked(plain(cell)) for cell in line) + " |" for line in (header, *rows)]
    return _Markup("\n".join([first, "| " + " | ".join(["---"] * len(header)) + " |", *rest]))
