"""A page fetched every second during another measurement."""

from __future__ import annotations

import contextlib
import threading
import urllib.request
from collections.abc import Iterator


@contextlib.contextmanager
def scraped(url: str | None) -> Iterator[None]:
    """Fetch the page every second in this process while the body runs; fetch nothing if ``url`` is None."""
    stop = threading.Event()

    def fetch() -> None:
        while url is not None and not stop.wait(1.0):
            with urllib.request.urlopen(url, timeout=10) as answer:
                answer.read()

    thread = threading.Thread(target=fetch)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
