"""The check of an error's text, and the sampling of expensive checks."""

from __future__ import annotations


def in_one_line(error: Exception) -> None:
    said = str(error)
    assert said.strip()
    assert "\n" not in said
    assert "\r" not in said


def sampled(data: bytes, one_in: int) -> bool:
    """Return True for about one in ``one_in`` inputs, always the same ones."""
    return sum(data) % one_in == 0
