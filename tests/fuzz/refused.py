"""What a refusal must be, whatever was refused."""

from __future__ import annotations


def in_one_line(error: Exception) -> None:
    said = str(error)
    assert said.strip()
    assert "\n" not in said
    assert "\r" not in said


def sampled(data: bytes, one_in: int) -> bool:
    """Whether this input is one of those on which the dear part of a target is spent; the same every time."""
    return sum(data) % one_in == 0
