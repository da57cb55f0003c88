"""docs/API.md, written from docstrings: ``python -m tests.reference.api_page``, or ``--check``."""

from __future__ import annotations

import enum
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from annotate.declared import FACTS
from gpuwatch.harness.pytest_plugin import _ARGUMENTS
from tests.generated_page import write_or_check
from tests.reference.docstring_parts import Parts
from tests.reference.public_names import (
    CONSTANTS,
    MODULES,
    ROOT,
    PublicName,
    attributes_of,
    documented_attributes,
    list_members,
    list_names,
)

PAGE = ROOT / "docs/API.md"
_DEFAULT_LENGTH = 40
_TITLES = {
    "gpuwatch": "`import gpuwatch`",
    "gpuwatch.auto": "`gpuwatch.auto`: harnesses without a changed line",
    "gpuwatch.errors": "`gpuwatch.errors`: the other errors",
    "annotate.judge": "`annotate`: the judge and its records",
    "pytest_gpuwatch": "pytest",
}
_HEAD = """\
# Python API

Written by `python -m tests.reference.api_page` from the docstrings; edit those.

This page lists every name that a program may rely on. Every other name, and every name that begins with `_`, may change in any
release. Each example runs in the tests on a simulated GPU. A line marked `# varies` shows a number or a status that depends on the machine.
The examples of a class form one session, which starts with:

```python
import time
from pathlib import Path

import gpuwatch
from annotate.capsule.unpack import unpack
from annotate.judge import judge

print(gpuwatch.__version__)
```

## What a name promises

| Promise | Meaning |
|---|---|
| stable | The name, its arguments and its attributes keep their meaning. Arguments and attributes may be added. A renamed one works under both names at least until the next minor release, and the changelog announces the removal of the old name. |
| provisional | The name works as described. The name may change in a minor release, with a line in the changelog and without an alias. |

Positional arguments keep their order. Plain data (`to_dict()`, `--json`) contains a number `schema`; keys may be added under the same number.
Text for people, such as `print(verdict)` or the message of an error, may change in any release. `tests/compatibility` holds files,
conversations and names of an earlier version; its tests fail if a name is lost.
"""
_AUTO = """\
`import gpuwatch.auto`, as the first import of a program, opens a window around each benchmark of Triton, torch and CuPy, without further
changes. At exit the process prints each harness's number of windows, and the reasons of windows that are not valid. `GPUWATCH=off` leaves
every harness alone. [INTEGRATIONS.md](INTEGRATIONS.md) names the harnesses and versions.
"""
_ANNOTATE = """\
`annotate` judges evidence and imports nothing of `gpuwatch`. [JUDGE.md](JUDGE.md) has examples, and
[annotate/RULES.md](../annotate/RULES.md) describes every rule. Import each name below from the module in the heading.
"""
_PYTEST = """\
`pytest --gpuwatch`, or `gpuwatch = true` in the ini file, opens a window around each benchmark on a GPU and judges it.
`--gpuwatch-fail-on STATUSES`, or the ini key `gpuwatch_fail_on`, fails tests with one of these verdicts: flagged, rejected, unproven.

### marker `gpuwatch`

*provisional* · `@pytest.mark.gpuwatch(claim="sustained", tolerance=None, precision=None, accept=(), limits=None)`

Set the claim and the policy of a test, by arguments of `gpuwatch.window`. The arguments apply to every window of the test. A marked test that opens no
window runs in one window as a whole.

{arguments}
Raises `pytest.UsageError`: when an argument is unknown, or when `gpuwatch.window` refuses its value.

Example: [examples/harness/test_plain.py](../examples/harness/test_plain.py)
"""
_NOTEBOOK = """\
## Notebooks

`%load_ext gpuwatch` adds the cell magic `%%gpuwatch [LABEL] [OPTIONS]` to IPython and Jupyter. The magic runs the cell in a window and shows the
verdict below the cell. The options are those of `gpuwatch run` ([CLI.md](CLI.md)): GPUs, claim, policy and tags. The magic is provisional.
"""


def page() -> str:
    names = list(list_names())
    parts = [_HEAD, _contents(names)]
    for module, listed in MODULES.items():
        if module in _TITLES:
            parts.append(f"## {_TITLES[module]}\n")
        parts.append({"gpuwatch.auto": _AUTO, "annotate.judge": _ANNOTATE}.get(module, ""))
        if module == "gpuwatch":
            parts += ["\n".join([f"### `gpuwatch.{name}`\n\n*stable*\n", *_body(each)]) for name, each in CONSTANTS.items()]
        if module == "pytest_gpuwatch":
            window = next(each for each in names if each.path == "gpuwatch.window")
            parts.append(
                _PYTEST.format(arguments=_table("Argument", {each: window.parts.arguments[each] for each in _ARGUMENTS}))
            )
        parts += [
            render(each) for each in names if each.path.rpartition(".")[0] == module and each.path.rpartition(".")[2] in listed
        ]
    parts += [_NOTEBOOK, _facts()]
    text_and_code = "\n".join(parts).split("```")  # text and code alternate
    squeezed = [each if place % 2 else re.sub(r"\n{3,}", "\n\n", each) for place, each in enumerate(text_and_code)]
    return "```".join(squeezed).rstrip() + "\n"


def _contents(names: Sequence[PublicName]) -> str:
    lines = ["## All names\n", "| Name | Promise | Meaning |", "|---|---|---|"]
    lines += [f"| [`{each.path}`](#{_anchor(each)}) | {promise(each.parts)} | {_text(each.parts.summary)} |" for each in names]
    return "\n".join(lines) + "\n"


def _heading(name: PublicName) -> str:
    """Return the heading's text; the word ``class`` gives ``window`` and ``Window`` different links."""
    if name.path.startswith("pytest_gpuwatch"):
        return f"fixture `{name.path.rpartition('.')[2]}`"
    return f"class `{name.path}`" if isinstance(name.value, type) else f"`{name.path}`"


def _anchor(name: PublicName) -> str:
    return re.sub(r"[^a-z0-9_-]", "", _heading(name).lower().replace(" ", "-"))


def promise(parts: Parts) -> str:
    """Return the word for a name's stability promise."""
    return "provisional" if parts.provisional else "stable"


def render(name: PublicName) -> str:
    """Return the section of one function or class, with its members."""
    because = f": {name.parts.provisional}" if name.parts.provisional else ""
    lines = [f"### {_heading(name)}", "", f"*{promise(name.parts)}*{because}", ""]
    if not isinstance(name.value, type) and not name.path.startswith("pytest_gpuwatch"):
        lines += [_signature(name), ""]
    lines += [*_body(name.parts)]
    if isinstance(name.value, type):
        lines += _attributes(name)
        for member in list_members(name):
            if not isinstance(member.value, property):
                lines += [f"#### `{name.path.rpartition('.')[2]}.{member.path.rpartition('.')[2]}`", "", _signature(member), ""]
                lines += _body(member.parts)
    return "\n".join(lines)


def _body(parts: Parts) -> Iterator[str]:
    yield f"{_text(parts.summary)}\n"
    if parts.text:
        yield f"{_text(parts.text)}\n"
    if parts.arguments:
        yield _table("Argument", parts.arguments)
    if parts.returns:
        yield f"Returns: {_text(parts.returns)}\n"
    for error, occasion in parts.raises:
        yield f"Raises `{error}`: {_text(occasion)}\n" if error else f"{_text(occasion)}\n"
    yield from _example(parts)


def _example(parts: Parts) -> Iterator[str]:
    """Yield sessions as code and the text between them."""
    if parts.example_file:
        yield f"Example: [{parts.example_file}](../{parts.example_file})\n"
        yield f"```py\n{(ROOT / parts.example_file).read_text()}```\n"
    for paragraph in filter(None, re.split(r"\n\n+", parts.example)):
        yield f"```pycon\n{paragraph}\n```\n" if paragraph.startswith(">>>") else f"{_text(paragraph)}\n"


def _attributes(name: PublicName) -> Iterator[str]:
    if issubclass(name.value, enum.Enum):
        yield "Values: " + ", ".join(f"`{each.name}` (`{each.value!r}`)" for each in name.value) + ".\n"
    described = dict(documented_attributes(name.value))
    for member in list_members(name):
        if isinstance(member.value, property):
            words = member.parts.summary.removeprefix("Return ")
            described.setdefault(member.path.rpartition(".")[2], f"{words[0].upper()}{words[1:]} {member.parts.text}".strip())
    known = attributes_of(name.value) | set(described)
    if described:
        yield _table("Attribute", {each: text for each, text in described.items() if each in known})


def _table(head: str, entries: Mapping[str, str]) -> str:
    lines = [f"| {head} | Meaning |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{name}` | {_text(text)} |" for name, text in entries.items())]) + "\n"


def _signature(name: PublicName) -> str:
    """Return the signature as a block of code, wrapped to 100 columns."""
    signature = name.signature
    bare = signature.replace(
        parameters=[
            each.replace(annotation=inspect.Parameter.empty, default=_short_default(each.default))
            for each in signature.parameters.values()
            if each.name not in ("self", "cls")
        ],
        return_annotation=inspect.Signature.empty,
    )
    call = name.path.rpartition(".")[2] + re.sub(r"<Claim\.\w+: ('[^']+')>", r"\1", str(bare)).replace("=Ellipsis", "=...")
    return "```text\n" + "\n".join(textwrap.wrap(call, 100, subsequent_indent="    ", break_long_words=False)) + "\n```"


def _short_default(value: object) -> object:
    """Return a default that prints in a few characters, and identically in every process."""
    return value if value is inspect.Parameter.empty or len(repr(value)) <= _DEFAULT_LENGTH else Ellipsis


def _text(text: str) -> str:
    """Return docstring text as Markdown: one backtick, one space, no bar that would end a cell."""
    return re.sub(" {2,}", " ", text.replace("``", "`").replace("|", "\\|"))


def _facts() -> str:
    head = (
        "## Facts that `declare` takes\n\nA declared fact can only worsen a verdict. The name of a fact ends with the unit.\n"
    )
    return f"{head}\n{_table('Fact', FACTS)}"


def main(arguments: Sequence[str], page_path: Path = PAGE) -> int:
    """Write the page; with ``--check`` return 1 if the page in the tree differs."""
    return write_or_check(page_path, page(), "the docstrings", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
