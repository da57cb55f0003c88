"""Figures of the code's size and names, each with a limit: `make shape`.

A file, class or function above its limit does too much.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

ROOT = Path(__file__).parents[1]
PRODUCT = ("annotate", "gpuwatch", "dashboards")
# AST statement nodes.  An increase needs an entry that names the user's benefit.
STATEMENTS_COUNT = sum(
    {
        "at a8d437f": 25_077,
        "fixed defects": 1_285,
        "windows left unjudged by a stop, and messages of marks": 10,
        "removed parts": -377,
        "verdicts with bounds": 3_270,
        "verdicts on a busy machine": 45,
        "comparisons by quads": 640,
        "complete documentation of public names, and a reference made from docstrings and help texts": 60,
        "tags of windows, physics in exported rows, named questions about a fleet, export delays and their metric": 500,
        "windows held between two processes, and numbers of untrusted code checked against the witness": 640,
        "windows around unchanged benchmarks of pytest, Triton, torch and CuPy": 1_125,
        "pauses, other work and stated claims": 800,
        "timers with common ticks, and impossible sizes (diff)": 12,
        "windows with an idle GPU for nine tenths of the time; sockets of C programs, nested runs, processes named late": 30,
        "status from bounds, schema 2, records of work": 640,
        "numbers of two machines, and the GPU's share": 560,
        "a busy GPU while times are read, untracked events, whole programs": 150,
        "a daemon that starts in a quarter of the time, with a third of the memory": 205,
        "verdicts in seven tenths of the time": 38,
        "rhythms distinguished from chance, the cap's swing from a change; a measured excess after idle": 250,
        "the code of two kernels side by side (diff)": 1_660,
        "gaps that grow with their calls, times that vary beyond their clock, memory that stays for a second": 75,
        "one alert for one cause, slow twins of all hosts; certificates, canaries and earlier Xids on the page": 125,
        "instances qualified against reference cards; dashboards, rules and samples in the wheel": 815,
        "the interval of a number at one clock on other cards": 14,
        "times that are too short within the gauge's error, and host pauses that it hides": 40,
        "changes that recur at a steady clock, power above the limit that was read, books without start times": 80,
        "the difference of clean windows, by number, cap and memory; peaks of a swing; a spread of cards as a setting": 50,
        "many GPUs measured without delaying each other": 12,
        "windows of one card at one constant clock, compared with the floor of one clock": 12,
        "the number of each timed window in audit": 10,
        "times that wait 12 s before they are read beside an open window": 55,
        "times at the driver's clock, and the variance of a swing without a rhythm": 22,
        "ordinary programs near rest, after a rest, and with a hole in the power record": 20,
        "noise of single calls, SM activity, late process lists and waits for data that are no hazard": 24,
        "refusals of every wrong value in one form, paths checked before the work, escaped labels in every log and output": 325,
        "results of other tools judged and compared, a gate for CI": 1_330,
        "P-state, links and MIG instances on the page, a dashboard and rules for 2 000 GPUs": 357,
        "rare sampling of an idle GPU, times handed over in a separate thread, windows that warm up, many verdicts": 400,
        "stops that end the measurement of lanes without a warning": 40,
        "commands and screens with convenient input: GPUs, labels, judge, completion, notebooks": 479,
        "both kernels run, checked and timed (diff)": 1_550,
        "removed parts (diff)": -220,
        "NVTX ranges of any program, and a C library (libgpuwatch)": 200,
        "the reasons of a ratio: counters, roofline, differences, an HTML page (diff)": 800,
        "times that do not fit, stamps of another GPU, few long entries, means of two speeds, launches inside events": 155,
        "a reference clock that the user sets, with the reason if it cannot be used": 105,
        "GPUs named alike in Python, daemon and commands; verdicts of three lines; refusals and units with words": 226,
        "top and report that draw what was there; dashboards' tables that fit; advice by the cause of a silence": 72,
        "numbers against this card's record, levels of work without times, hung pages, idle time that raises the clock": 440,
    }.values()
)
FILE_LINES, MEDIAN_LINES = 300, 110
CLASS_LINES, CLASS_METHODS = 250, 20
FUNCTION_LINES = 50  # without its docstring
PARAMETERS_COUNT = 7
PUBLIC = {"bench", "compare", "window"}  # functions of the public API, whose options are keyword arguments
TEST_NAME_LENGTH = 60
_LONG_NAME = re.compile(rf"\bdef\s+test_\w{{{TEST_NAME_LENGTH - len('test_') + 1}}}")
_NO_VERB = re.compile(
    r"(What|Who|Whose|Which|Where|Whether|How|By|Of|With|In|At|The|An?|One|All|Each|Every|If|For|From|This)\b"
)
SHARED_NAMES = {"__init__", "__main__", "errors"}  # several packages have one

Function = ast.FunctionDef | ast.AsyncFunctionDef
Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure, its limit, and the places that exceed it."""

    name: str
    value: float
    limit: float
    places: tuple[str, ...] = ()

    @property
    def is_met(self) -> bool:
        return self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Source:
    """One parsed file."""

    path: Path
    text: str
    tree: ast.Module
    every: tuple[ast.AST, ...]  # nodes of the tree, collected once for all figures

    def nodes(self, *kinds: type[Node]) -> Iterator[Node]:
        return (node for node in self.every if isinstance(node, kinds))

    @property
    def functions(self) -> Iterator[Function]:
        yield from self.nodes(ast.FunctionDef)
        yield from self.nodes(ast.AsyncFunctionDef)

    def place(self, node: ast.AST) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)} {getattr(node, 'name', '')}"


def read(*folders: str, root: Path = ROOT) -> list[Source]:
    """Parse every Python file below these folders of the repository."""
    return [_read_file(path, root) for folder in folders for path in sorted((root / folder).rglob("*.py"))]


def _read_file(path: Path, root: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    return Source(path.relative_to(root), text, tree, tuple(ast.walk(tree)))


def read_long_names(folder: str, root: Path = ROOT) -> list[Source]:
    """Parse the files below a folder that may have too long a test name; parsing all tests would be slow."""
    paths = [path for path in sorted((root / folder).rglob("*.py")) if _LONG_NAME.search(path.read_text(encoding="utf-8"))]
    return [_read_file(path, root) for path in paths]


def figures(product: Iterable[Source], tests: Iterable[Source]) -> list[Figure]:
    """Measure the product and the names of the tests."""
    product = list(product)
    lengths = {str(source.path): source.text.count("\n") for source in product}
    functions = [(source, node) for source in product for node in source.functions]
    classes = [(source, node) for source in product for node in source.nodes(ast.ClassDef)]
    return [
        Figure("statements", sum(1 for source in product for _ in source.nodes(ast.stmt)), STATEMENTS_COUNT - 1),
        Figure("lines of the median file", median(lengths.values()), MEDIAN_LINES),
        _above("lines of a file", lengths, FILE_LINES),
        _above("lines of a class", {source.place(node): _lines_count(node) for source, node in classes}, CLASS_LINES),
        _above("methods of a class", {source.place(node): _methods_count(node) for source, node in classes}, CLASS_METHODS),
        _above("lines of a function", {source.place(node): _lines_count(node) for source, node in functions}, FUNCTION_LINES),
        _above(
            "parameters of a function",
            {source.place(node): _parameters_count(node) for source, node in functions if node.name not in PUBLIC},
            PARAMETERS_COUNT,
        ),
        _none("fmt: skip outside tables", [place for source in product for place in _skips(source)]),
        _none(
            "module names used twice", _twice((source.path.stem, str(source.path)) for source in product if _is_named(source))
        ),
        _none(
            "function docstrings without a verb",
            [source.place(node) for source, node in functions if _is_verbless(node)],
        ),
        _none("class names used twice", _twice((node.name, source.place(node)) for source, node in classes)),
        _none(
            f"test names above {TEST_NAME_LENGTH} characters",
            [
                source.place(node)
                for source in tests
                for node in source.functions
                if node.name.startswith("test_") and len(node.name) > TEST_NAME_LENGTH
            ],
        ),
    ]


def _above(name: str, values: dict[str, int], limit: int) -> Figure:
    places = tuple(f"{value} {place}" for place, value in values.items() if value > limit)
    return Figure(name, max(values.values(), default=0), limit, places)


def _none(name: str, places: list[str]) -> Figure:
    return Figure(name, len(places), 0, tuple(places))


def _twice(names: Iterable[tuple[str, str]]) -> list[str]:
    by_name = defaultdict(list)
    for name, place in names:
        by_name[name].append(place)
    return [f"{name}: {', '.join(places)}" for name, places in by_name.items() if len(places) > 1]


def _is_named(source: Source) -> bool:
    """Return True if a file needs a unique name: shared names and the files of ``cli/``, named after commands, need none."""
    return source.path.stem not in SHARED_NAMES and "cli" not in source.path.parts


def _lines_count(node: ast.AST) -> int:
    assert isinstance(node, Function | ast.ClassDef)
    lines_count = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if isinstance(node, Function) and ast.get_docstring(node, clean=False) is not None:
        lines_count -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines_count


def _methods_count(node: ast.AST) -> int:
    assert isinstance(node, ast.ClassDef)
    return sum(isinstance(each, Function) for each in node.body)


def _parameters_count(node: ast.AST) -> int:
    assert isinstance(node, Function)
    arguments = node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return (
        len(names) - (names[:1] in (["self"], ["cls"])) + sum(each is not None for each in (arguments.vararg, arguments.kwarg))
    )


def _is_verbless(node: ast.AST) -> bool:
    """Return True if a function's docstring starts with a word of _NO_VERB, such as an article; properties are exempt."""
    assert isinstance(node, Function)
    is_property = any("property" in ast.unparse(each) for each in node.decorator_list)
    return not is_property and _NO_VERB.match(ast.get_docstring(node) or "") is not None


def _skips(source: Source) -> Iterator[str]:
    """Find lines that disable the formatter outside tables; a table is a constant of a module or class in columns."""
    bodies = [source.tree.body, *(node.body for node in source.nodes(ast.ClassDef) if isinstance(node, ast.ClassDef))]
    ends = {node.end_lineno for body in bodies for node in body if isinstance(node, ast.Assign | ast.AnnAssign)}
    for number, line in enumerate(source.text.splitlines(), 1):
        if "# fmt: off" in line or ("# fmt: skip" in line and number not in ends):
            yield f"{source.path}:{number}"


def main(product: Sequence[str] = PRODUCT, tests: str = "tests") -> int:
    """Print every figure with its limit, and the places above the limit; return 1 if a figure exceeds its limit."""
    found = figures(read(*product), read_long_names(tests))
    for figure in found:
        mark = " " if figure.is_met else "!"
        sys.stdout.write(f"{mark} {figure.name:<38} {figure.value:>8g}   at most {figure.limit:g}\n")
        for place in () if figure.is_met else figure.places:
            sys.stdout.write(f"      {place}\n")
    return int(not all(figure.is_met for figure in found))


if __name__ == "__main__":
    gc.disable()  # scans of a million permanent nodes take half of the time
    sys.exit(main())
