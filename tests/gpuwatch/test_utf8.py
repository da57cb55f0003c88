"""Tests of text that is not valid UTF-8, converted to text that every file and message can hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.utf8 import clean_text, clean_tree

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=30)


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("python", "python"),
        ("été", "été"),
        ("", ""),
        (b"entrainements_\xc3", "entrainements_�"),
        ("entrainements_\udcc3", "entrainements_�"),
        ("\ud800", "�"),
        ("\ud83d\ude00", "��"),  # two halves are two characters in Python, and neither can be written
        ("\U0001f600", "\U0001f600"),
        (b"580\xff.1", "580�.1"),
    ],
)
def test_clean_text_replaces_invalid_utf8(raw: bytes | str, clean: str) -> None:
    assert clean_text(raw) == clean


@given(ANY_TEXT | st.binary(max_size=30))
def test_clean_text_can_always_be_encoded(raw: bytes | str) -> None:
    clean = clean_text(raw)
    assert clean.encode().decode() == clean
    assert clean_text(clean) == clean


def test_clean_tree_cleans_keys_and_values_at_any_depth() -> None:
    tree = {"a\udcff": ["\ud800", {"b": ("c\udc80", 1, None, True, 1.5)}]}
    assert clean_tree(tree) == {"a�": ["�", {"b": ["c�", 1, None, True, 1.5]}]}
