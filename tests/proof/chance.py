"""Random numbers by seed and purpose: equal on every machine, and independent between purposes."""

from __future__ import annotations

import math
import zlib

import numpy as np


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Return the generator of this purpose; two purposes of one seed are independent."""
    return np.random.Generator(np.random.PCG64([seed, zlib.crc32(purpose.encode())]))


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """Draw a number with a uniform logarithm between ``low`` and ``high``."""
    return math.exp(float(rng.uniform(math.log(low), math.log(high))))
