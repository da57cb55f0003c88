"""Tests of SASS from nvdisasm: normalised, with classes and loops."""

from __future__ import annotations

import pytest

from gpuwatch.diff.sass import disassemble, read_function
from gpuwatch.errors import UsageError

Instruction = dict[str, str]


def one(opcode: str, operands: str = "", predicate: str = "") -> Instruction:
    found = {"opcode": opcode, "operands": operands}
    return found | ({"predicate": predicate} if predicate else {})


@pytest.mark.parametrize(
    ("instruction", "kind", "text"),
    [
        (one("LDG.E.128.CONSTANT", "R4,desc[UR4][R2.64]"), "LDG.128", "LDG.E.128.CONSTANT R, desc[UR][R.64]"),
        (one("LDG.E.U16", "R4,[R2]"), "LDG.16", "LDG.E.U16 R, [R]"),
        (one("STS", "[R4+0x10],R5"), "STS.32", "STS [R+0x10], R"),
        (one("MUFU.EX2", "R4,R5.reuse"), "MUFU.EX2", "MUFU.EX2 R, R"),
        (one("HGMMA.64x256x16.F32", "R24,gdesc[UR8],R24"), "HGMMA", "HGMMA.64x256x16.F32 R, gdesc[UR], R"),
        (one("FFMA", "R4,R5,RZ,R255", "@!P0"), "FFMA", "@!P FFMA R, R, RZ, R"),
        (one("RET.REL.NODEC", "R2,_Z6kernelPf"), "RET", "RET.REL.NODEC R"),
        (one("CALL.REL.NOINC", "$__internal_0_$__cuda_div"), "CALL", "CALL.REL.NOINC __cuda_div"),
    ],
)
def test_instruction_is_classed_and_normalised(instruction: Instruction, kind: str, text: str) -> None:
    (found,) = read_function([instruction], {})
    assert (found.kind, found.text) == (kind, text)


def test_padding_and_trap_are_left_out() -> None:
    code = [one("EXIT"), one("BRA", "0x10"), one("NOP"), one("NOP")]
    assert [each.kind for each in read_function(code, {})] == ["EXIT"]


def test_branch_back_makes_a_loop() -> None:
    code = [one("S2R", "R0,SR_TID.X"), one("FADD", "R1,R1,R2"), one("BRA", "0x10", "@P0"), one("EXIT")]
    found = read_function(code, {0: ("a.cu", 1), 16: ("a.cu", 7)})
    assert [each.depth for each in found] == [0, 1, 1, 0]
    assert [each.line for each in found] == [1, 7, 7, 7]
    assert found[2].text == "@P BRA L"


@pytest.mark.parametrize("jump", [one("BRA.U", "!UP0,0x40"), one("BRA.DIV", "UR4,0x40"), one("BRA", "!P1,0x40")])
def test_conditional_branch_falls_through(jump: Instruction) -> None:
    code = [one("MOV"), jump, one("FADD"), one("BRA", "0x20", "@P0"), one("EXIT")]
    assert [each.depth for each in read_function(code, {})] == [0, 0, 1, 1, 0]


def test_disassembly_of_other_bytes_is_refused() -> None:
    with pytest.raises(UsageError, match=r"x\.cubin: expected a cubin that nvdisasm can read"):
        disassemble(b"noise", "x.cubin")
