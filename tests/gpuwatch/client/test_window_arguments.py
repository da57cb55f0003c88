"""Tests of the arguments that a window and its decorator refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import gpuwatch

WRONG = [
    ({"claim": "sustaned"}, "did you mean 'sustained'"),
    ({"claim": 3}, "claim"),
    ({"label": 3}, "label: expected text"),
    ({"on_reject": "explode"}, "on_reject"),
    ({"gpus": [0]}, "index"),
    ({"claim": "burst", "policy": gpuwatch.Policy()}, "contradicts"),
]


@pytest.mark.parametrize(("arguments", "expected"), WRONG)
def test_window_refuses_wrong_arguments(arguments: dict[str, object], expected: str) -> None:
    with pytest.raises((gpuwatch.UsageError, ValueError), match=expected):
        gpuwatch.window(**arguments)  # type: ignore[arg-type]  # wrong on purpose


def test_decorator_refuses_a_generator() -> None:
    with pytest.raises(gpuwatch.UsageError, match="generator"):

        @gpuwatch.window()
        def numbers() -> Iterator[int]:
            yield 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"gpus": 0}, "gpus: expected texts, found 0; write UUIDs, or gpus=['0']"),
        ({"gpus": [0]}, "gpus: expected texts, found 0; write UUIDs, or gpus=['0']"),
        ({"policy": "strict"}, "policy: expected a gpuwatch.Policy, found 'strict'"),
        ({"policy": "strict", "claim": "burst"}, "policy: expected"),
        ({"accept": ["outlier"]}, "did you mean 'outliers'?"),
        ({"limits": {"no-work": {"busy": 0.1}}}, "busy"),
        ({"limits": 3}, "limits: expected a table of tables, found 3"),
        ({"policy": gpuwatch.Policy(), "accept": ["outliers"]}, "policy: expected no accept or limits with a policy"),
        ({"claim": None}, "claim: expected text, found None"),
        ({"settings": {}}, "settings: expected gpuwatch.config.settings.Settings"),
        ({"label": "x" * 257}, "label: expected at most 256 characters, found 257"),
        ({"label": 5}, "label: expected text, found 5"),
        ({"on_reject": None}, "on_reject: expected 'report' or 'raise'"),
    ],
)
def test_window_refuses_wrong_arguments_in_one_line(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(gpuwatch.UsageError, match=re.escape(says)) as caught:
        gpuwatch.window(**wrong)
    assert "\n" not in str(caught.value)


def test_decorator_without_parentheses_names_the_fix() -> None:
    with pytest.raises(gpuwatch.UsageError, match=r"@gpuwatch.window\(\)"):
        gpuwatch.window(lambda: None)  # type: ignore[arg-type]  # wrong on purpose
