"""SQLite: the only package that imports it.  One writer (``Store``), any number of readers (``Reader``)."""

from __future__ import annotations

from sqlite3 import sqlite_version as SQLITE_VERSION  # noqa: N812 - a constant of ours

from gpuwatch.store.reader import Reader
from gpuwatch.store.run import Run
from gpuwatch.store.writer import Store

__all__ = ["SQLITE_VERSION", "Reader", "Run", "Store"]
