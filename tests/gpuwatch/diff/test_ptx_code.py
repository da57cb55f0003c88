"""Tests of PTX: kernels by symbol, instructions by operation, memory space and vector width, and loops."""

from __future__ import annotations

from gpuwatch.diff.ptx_code import read_ptx

TEXT = """
.file 1 "/somewhere/a.cu"
.visible .entry first(.param .u64 p)
.maxntid 256
{
    .reg .b32 %r<4>;
    .loc 1 3 5
    ld.param.u64 %rd1, [p];
$L__BB0_1:
    .loc 1 4 5
    ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16];
    fma.rn.f32 %f5, %f1, %f2, %f3; // a comment;
    bar.sync 0;
    @%p1 bra $L__BB0_1;
    st.shared.f32 [%r1], %f5;
    ret;
}
.entry second()
{
    ret;
}
"""


def test_kernels_are_found_by_symbol() -> None:
    assert {name: len(code) for name, code in read_ptx(TEXT).items()} == {"first": 7, "second": 1}


def test_instructions_are_classed_with_their_loop() -> None:
    code = read_ptx(TEXT)["first"]
    assert [(each.kind, each.depth) for each in code] == [
        ("ld.param", 0), ("ld.global.v4", 1), ("fma", 1), ("bar.sync", 1), ("bra", 1), ("st.shared", 0), ("ret", 0),
    ]  # fmt: skip
    assert code[1].text == "ld.global.nc.v4.f32 {%f, %f, %f, %f}, [%rd+16]"
    assert (code[1].file, code[1].line) == ("a.cu", 4)


def test_kernel_names_are_not_compared() -> None:
    code = [
        read_ptx(f".entry {name}() {{\n ld.param.u64 %rd3, [{name}_param_0];\n bra $L__BB{i}_2;\n}}")[name]
        for i, name in enumerate("ab")
    ]
    assert [each.exact for each in code[0]] == ["ld.param.u64 %rd3, [param_0]", "bra $L_2"]
    assert code[0] == code[1]


def test_ptx_without_kernels_gives_no_code() -> None:
    assert read_ptx("") == {}
    assert read_ptx(".visible .func (.param .b32 r) f() { ret; }") == {}
