"""Requirements on every refusal."""

from __future__ import annotations


def in_one_line(error: Exception) -> None:
    said = str(error)
    assert said.strip()
    assert "\n" not in said
    assert "\r" not in said


def sampled(data: bytes, one_in: int) -> bool:
    """Return True for the fixed part of inputs on which a target runs its expensive checks."""
    return sum(data) % one_in == 0
