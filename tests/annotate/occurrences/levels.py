"""Windows with times that change at a constant clock."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from annotate.evidence import Evidence
from tests.annotate.occurrences.numbers import even, window


def scenes() -> Iterator[Evidence]:
    yield window(even() * np.linspace(1.0, 1.3, 6000))
    yield window(even() * np.where(np.arange(6000) < 3000, 1.0, 1.1))
