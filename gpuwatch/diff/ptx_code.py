"""PTX of each kernel: instructions with their class (operation and memory space) and loop depth."""

import re
from collections.abc import Sequence

from gpuwatch.diff.code_line import CodeLine
from gpuwatch.diff.control_flow import Step, loop_depths

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_LABEL = re.compile(r"^\s*([\w$]+):")
_NAME = re.compile(r"%(\w*?[a-z])\d+\b")
_LABELS, _KERNEL, _PARAMETER = re.compile(r"\$L\w+"), re.compile(r"\$L__BB\d+_"), re.compile(r"\[\w+?_(param_\d+)")
_COMMENT = re.compile(r"//.*")
_INSTRUCTION = re.compile(r"^(?:@(?P<predicate>!?%\w+)\s+)?(?P<opcode>[a-z][\w.:]*)\b(?P<operands>[^;]*);")
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s*"([^"]*)")?', re.M)
_SPACES = {"global", "shared", "local", "param", "const"}
_SPACED = {"ld", "st", "atom", "red", "ldu", "cp", "prefetch"}
_WHOLE = {"bar", "barrier", "membar", "fence", "mma", "wgmma", "shfl", "vote", "mbarrier"}


def read_ptx(text: str) -> dict[str, tuple[CodeLine, ...]]:
    """Return the instructions of each kernel, by symbol."""
    files = {int(number): (last or first).rpartition("/")[2] for number, first, last in _FILE.findall(text)}
    kernels = {}
    for entry in _ENTRY.finditer(text):
        begin = text.find("{", entry.end())
        end = text.find("\n}", begin)  # only a kernel's closing brace is in the first column
        if begin >= 0:
            kernels[entry[1]] = _read_body(text[begin + 1 : end if end >= 0 else len(text)], files)
    return kernels


def _read_body(body: str, files: dict[int, str]) -> tuple[CodeLine, ...]:
    places: dict[str, int] = {}
    found: list[tuple[re.Match[str], tuple[str, int]]] = []
    place = ("", 0)
    for raw in body.splitlines():
        line = _COMMENT.sub("", raw).strip()
        location = _LOC.match(line)
        if location:
            place = (files.get(int(location[1]), ""), int(location[2]))
        label = _LABEL.match(line)
        if label:
            places[label[1]] = len(found)
            line = line[label.end() :].strip()
        instruction = _INSTRUCTION.match(line)
        if instruction:
            found.append((instruction, place))
    depths = loop_depths([_step(each, places) for each, _ in found])
    return tuple(
        CodeLine(_kind(each["opcode"]), _NAME.sub(r"%\1", _LABELS.sub("L", _exact(each))), depth, *where, _exact(each))
        for (each, where), depth in zip(found, depths, strict=True)
    )


def _step(instruction: re.Match[str], places: dict[str, int]) -> Step:
    opcode = instruction["opcode"].partition(".")[0]
    if opcode == "bra":
        target = places.get(instruction["operands"].strip())
        return Step((target,) if target is not None else (), falls_through=instruction["predicate"] is not None)
    return Step(falls_through=opcode not in ("ret", "exit", "trap") or instruction["predicate"] is not None)


def _exact(instruction: re.Match[str]) -> str:
    """Return an instruction as one line, without the kernel's number in labels and its name in parameters."""
    predicate = f"@{instruction['predicate']} " if instruction["predicate"] else ""
    operands = _PARAMETER.sub(r"[\1", _KERNEL.sub("$L_", " ".join(instruction["operands"].split())))
    return f"{predicate}{instruction['opcode']} {operands}".strip()


def _kind(opcode: str) -> str:
    name, *modifiers = opcode.replace("::", ".").split(".")
    if name in _SPACED:
        return ".".join([name, *_first(modifiers, _SPACES), *_first(modifiers, {"v2", "v4", "v8", "async", "bulk"})])
    if name in _WHOLE:
        return ".".join([name, *modifiers[:1]])
    return name


def _first(words: Sequence[str], wanted: set[str]) -> list[str]:
    return next(([word] for word in words if word in wanted), [])
