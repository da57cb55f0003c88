"""Python's garbage collector, held off while a benchmark times."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

HELD_OFF = "off"  # in answers; an H200 waited 88 ms for one collection between two timed launches


@contextmanager
def held_off() -> Iterator[None]:
    """Hold the collector off, as ``timeit`` does; afterwards it is as it was."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
