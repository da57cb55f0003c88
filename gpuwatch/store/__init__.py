"""SQLite: one writer, many readers, and evidence that outlives both.  The only package that imports sqlite3.

``gpuwatch.db`` keeps runs, findings, devices and packed evidence for good; ``readings-*.db`` are segments of raw readings,
dropped whole, oldest first.
"""

from gpuwatch.interfaces import Run
from gpuwatch.store.files import SQLITE_VERSION
from gpuwatch.store.reader import Reader
from gpuwatch.store.store_options import StoreLimits
from gpuwatch.store.writer import Store

__all__ = ["SQLITE_VERSION", "Reader", "Run", "Store", "StoreLimits"]
