"""SASS from ``nvdisasm -json``: instructions with their class, and with registers and jump targets normalised."""

import functools
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuwatch.diff import toolchain
from gpuwatch.diff.code_line import CodeLine
from gpuwatch.diff.control_flow import Step, loop_depths
from gpuwatch.diff.source_lines import Lines
from gpuwatch.errors import UsageError

_BYTES = 16  # per instruction since Volta
_REGISTER = re.compile(r"\b(UR|UP|R|P|B|SB)\d+\b")
_REUSE = re.compile(r"\.reuse\b")
_SUBROUTINE = re.compile(r"\$__internal_\d+_\$")
_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b")
_ENDS = {"EXIT", "RET", "BRA", "JMP", "BRX", "JMX", "KILL", "BPT"}
_JUMPS = {"BRA", "JMP", "CALL", "BSSY", "BRX", "SSY", "PBK", "WARPSYNC"}
_FLOWS = {"BRA", "JMP"}
_WIDE = re.compile(r"U?LDCU?|(?:LD|ST)(?:[GSL]|GSTS|SM)?|ATOM[GS]")
_WIDTHS = {"U8": "8", "S8": "8", "U16": "16", "S16": "16", "64": "64", "128": "128", "256": "256"}


def disassemble(cubin: bytes, shown: str) -> dict[str, list[dict[str, Any]]]:
    """Return the instructions of each function, by symbol.

    Raises UsageError: when nvdisasm is missing or cannot read the cubin.
    """
    output, complaint = _run_disassembler(cubin)
    try:
        return {each["function-name"]: each["sass-instructions"] for each in json.loads(output)[1]}
    except (ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{shown}: expected a cubin that nvdisasm can read, found: {complaint or 'no code'}") from error


@functools.lru_cache(maxsize=64)  # nvdisasm is slow, and both sides are often kernels of one file
def _run_disassembler(cubin: bytes) -> tuple[str, str]:
    tool = toolchain.find_tool("nvdisasm")
    if tool is None:
        raise UsageError(f"gpuwatch diff needs nvdisasm, found none; run: {toolchain.EXTRA}")
    with tempfile.TemporaryDirectory(prefix="gpuwatch-diff-") as folder:
        path = Path(folder) / "code.cubin"
        path.write_bytes(cubin)
        done = toolchain.run_tool([str(tool), "-json", str(path)])
    complaint = next((line for line in done.stderr.splitlines() if line.strip()), "")
    return done.stdout, complaint.replace(str(path), "the cubin")


def read_function(instructions: Sequence[Mapping[str, Any]], lines: Lines) -> tuple[CodeLine, ...]:
    """Return a function's normalised instructions, without the padding after its end."""
    code = list(instructions)
    while code and code[-1]["opcode"] == "NOP":
        code.pop()
    if len(code) > 1 and code[-1]["opcode"] == "BRA" and _target(code[-1]) == len(code) - 1:
        code.pop()  # the trap after the end
    depths = loop_depths([_step(each) for each in code])
    labels = {_target(each) for each in code if each["opcode"].partition(".")[0] in _JUMPS}
    found: list[CodeLine] = []
    place: tuple[str, int] = ("", 0)
    for index, (each, depth) in enumerate(zip(code, depths, strict=True)):
        place = lines.get(index * _BYTES, place)
        exact = _exact(each)
        text = _REGISTER.sub(r"\1", _with_labels(exact, labels) if each["opcode"].partition(".")[0] in _JUMPS else exact)
        found.append(CodeLine(_kind(each["opcode"]), text, depth, *place, exact))
    return tuple(found)


def _step(instruction: Mapping[str, Any]) -> Step:
    name, *modifiers = instruction["opcode"].split(".")
    # A predicate precedes the opcode or is the first operand.  Divergence is a condition, too.
    operands = instruction.get("operands", "").lstrip("!")
    is_conditional = "predicate" in instruction or (
        name in _FLOWS and (operands.startswith(("P", "UP")) or not {"DIV", "CONV"}.isdisjoint(modifiers))
    )
    target = _target(instruction) if name in _FLOWS else None
    ends = name in _ENDS and not is_conditional
    return Step((target,) if target is not None else (), falls_through=not ends)


def _target(instruction: Mapping[str, Any]) -> int | None:
    """Return the index of a jump's target, the last address among the operands; None without an address."""
    found = _ADDRESS.findall(instruction.get("operands", ""))
    return int(found[-1], 16) // _BYTES if found else None


def _exact(instruction: Mapping[str, Any]) -> str:
    opcode = instruction["opcode"]
    operands = _SUBROUTINE.sub("", _REUSE.sub("", instruction.get("operands", "")))
    if opcode.startswith("RET"):
        operands = operands.partition(",")[0]  # the rest is the kernel's name, which is not compared
    return f"{instruction.get('predicate', '')} {opcode} {operands.replace(',', ', ')}".strip()


def _with_labels(text: str, labels: set[int | None]) -> str:
    return _ADDRESS.sub(lambda found: "L" if int(found[0], 16) // _BYTES in labels else found[0], text)


def _kind(opcode: str) -> str:
    name, *modifiers = opcode.split(".")
    if _WIDE.fullmatch(name):
        return f"{name}.{next((_WIDTHS[each] for each in modifiers if each in _WIDTHS), '32')}"
    return ".".join([name, *modifiers[:1]]) if name == "MUFU" else name
