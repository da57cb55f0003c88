"""Tests of GPU enumeration when the driver answers unexpectedly."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.errors import SourceGoneError
from gpuwatch.sources.nvml.enumeration import RollCall


class _Api:
    """A mock NVML binding that lists one GPU per exception, and raises the exception for the GPU's handle."""

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    def __init__(self, *raised: Exception) -> None:
        self.raised = list(raised)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - the driver's name
        return len(self.raised)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802 - the driver's name
        raise self.raised[index]


def test_enumeration_survives_an_unexpected_exception() -> None:
    """``missing`` names an unexpected exception, and the next call queries the GPU again."""
    api = _Api(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), _Api.NVMLError(15))
    roll = RollCall(api, patience_s=5.0)
    assert roll.call() == []
    assert "UnicodeDecodeError" in roll.missing[0]
    api.raised[0] = _Api.NVMLError(15)
    assert roll.call() == []
    assert roll.missing[0] == "the GPU fell off the bus or is otherwise lost"


def test_enumeration_drops_answers_of_a_failed_call() -> None:
    """A call reuses no answer of an earlier call that raised SourceGoneError."""
    api = _Api(_Api.NVMLError(9), _Api.NVMLError(15))
    roll = RollCall(api, patience_s=5.0)
    with pytest.raises(SourceGoneError):
        roll.call()
    api.raised = [_Api.NVMLError(15), _Api.NVMLError(16)]
    assert roll.call() == []
    assert "reset" in roll.missing[1]
