"""Tests of compiler logs: the first error as one line, and the spills that ptxas reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.diff.compiler_log import missing_header, refusal, spilled_bytes


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ('/w/a.cu(2): error: identifier "y" is undefined\n  x = y;\n\n1 error detected', 'a.cu:2: identifier "y" is undefined'),
        ('/w/a.cu(2): error #20: identifier "y" is undefined', 'a.cu:2: identifier "y" is undefined'),
        ("/w/h.cuh(7): error: expected a ;", "/w/h.cuh:7: expected a ;"),
        ("/w/a.cu:1:10: fatal error: no.h: No such file or directory", "a.cu:1: header 'no.h' is not in any include folder"),
        (
            '/w/a.cu(1): catastrophic error: cannot open source file "no.h"',
            "a.cu:1: header 'no.h' is not in any include folder",
        ),
        ("ptxas a.ptx, line 7; error   : Unknown symbol 'x'", "a.ptx:7: Unknown symbol 'x'"),
        ("nvcc fatal   : Unknown option '--bogus'", "a.cu: Unknown option '--bogus'"),
        (
            "ptxas error : Entry function '_Z1kPf' uses too much shared data (0x13880 bytes, 0xc000 max)",
            "static shared memory in k",
        ),
        ("", "a.cu: no message"),
    ],
)
def test_refusal_is_one_line_with_file_and_line(log: str, line: str) -> None:
    told = refusal(log, Path("/w/a.cu"), "a.cu")
    assert line in told
    assert "\n" not in told


def test_refusal_of_a_revision_names_the_side() -> None:
    told = refusal("/tmp/at/tree/a.cu(2): error: no", Path("/tmp/at/tree/a.cu"), "lib@v1:src/a.cu:k")
    assert told == "lib@v1:src/a.cu:2: no"


def test_missing_header_is_distinguished() -> None:
    assert missing_header('a.cu(1): catastrophic error: cannot open source file "no.h"') == "no.h"
    assert missing_header("a.cu(1): error: expected a ;") is None


def test_spills_are_read_per_kernel() -> None:
    """A kernel without a line of ptxas about spills has no entry."""
    log = """ptxas info    : Compiling entry function 'a' for 'sm_90'
ptxas info    : Function properties for a
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 512 bytes smem
ptxas info    : Compiling entry function 'b' for 'sm_90'
ptxas info    : Used 16 registers"""
    assert spilled_bytes(log) == {"a": (12, 16)}
