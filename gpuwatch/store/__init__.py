"""SQLite: the only package that imports it.  One writer (``Store``), any number of readers (``Reader``)."""

from __future__ import annotations

from gpuwatch.store.reader import Reader
from gpuwatch.store.run import Run
from gpuwatch.store.writer import Store

__all__ = ["Reader", "Run", "Store"]
