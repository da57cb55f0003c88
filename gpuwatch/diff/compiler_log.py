"""Compiler messages: the first error with its file and line, and the spills that ptxas reports for each kernel."""

import re
from pathlib import Path

from gpuwatch.diff.symbols import full_name

_EDG_ERROR = re.compile(
    r"^(?P<file>[^\n]+?)\((?P<line>\d+)\): (?:catastrophic |fatal )?error(?: #[\w-]+)?: (?P<text>.+)$", re.M
)
_GCC_ERROR = re.compile(r"^(?P<file>[^\n:]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.+)$", re.M)
_PTXAS_PLACE = re.compile(r"^ptxas (?P<file>[^,\n]+), line (?P<line>\d+); error\s*: (?P<text>.+)$", re.M)
_SHARED = re.compile(r"Entry function '(?P<kernel>[^']+)' uses too much shared data \((?P<used>\w+) bytes, (?P<most>\w+) max\)")
_ANY_ERROR = re.compile(r"\b(?:error|fatal)\b\s*:?\s*(?P<text>.+)", re.IGNORECASE)
_MISSING_HEADER = re.compile(r"(?:could not|cannot) open source file \"(?P<a>[^\"]+)\"|(?P<b>\S+): No such file or directory")
_NAME_EXPRESSION = "__nv_name_map"  # NVRTC's name of the file that holds name expressions
_SPILLS = re.compile(
    r"Compiling entry function '([^']+)'(?:(?!Compiling entry).)*? (\d+) bytes spill stores, (\d+) bytes spill loads", re.S
)


def refusal(log: str, source: Path, shown: str) -> str:
    """Return an error of a log as one line, with its file and line if known; ``shown`` is the user's path."""
    for form in (_EDG_ERROR, _GCC_ERROR, _PTXAS_PLACE):
        found = form.search(log)
        if found is None:
            continue
        header = missing_header(found["text"])
        missing = f"header {header!r} is not in any include folder; name its folder after --, as: -- -I FOLDER"
        text = " ".join(found["text"].split()) if header is None else missing
        if found["file"] == _NAME_EXPRESSION:
            return f"{shown}: expected --fn to name a template instance of the file, found: {text}"
        own = shown.partition(f"{source.suffix}:")[0].removesuffix(source.suffix) + source.suffix
        file = own if Path(found["file"].strip()).name == source.name else found["file"]
        return f"{file}:{found['line']}: {text}"
    found = _SHARED.search(log)
    if found:
        used, most = int(found["used"], 16), int(found["most"], 16)
        return (
            f"{shown}: expected at most {most} bytes of static shared memory in {full_name(found['kernel'])}, found {used}; "
            "declare it as extern __shared__ and give its size with --launch 'smem=BYTES'"
        )
    found = _ANY_ERROR.search(log)
    text = found["text"] if found else next((line for line in log.splitlines() if line.strip()), "no message")
    return f"{shown}: {' '.join(text.replace(str(source.resolve()), shown).split())}"


def missing_header(log: str) -> str | None:
    """Return the header that the compiler did not find; None for other errors."""
    found = _MISSING_HEADER.search(log)
    return (found["a"] or found["b"]) if found else None


def spilled_bytes(log: str) -> dict[str, tuple[int, int]]:
    """Return the bytes of spill stores and spill loads by kernel symbol, from a log of ``ptxas -v``."""
    return {symbol: (int(stores), int(loads)) for symbol, stores, loads in _SPILLS.findall(log)}
