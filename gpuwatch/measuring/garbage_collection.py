"""Python's garbage collector, disabled during measurements."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

HELD_OFF = "off"  # the term in results; a collection between two timed launches can stall the GPU


@contextmanager
def held_off() -> Iterator[None]:
    """Disable the collector, as ``timeit`` does, and restore its earlier state afterwards."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
