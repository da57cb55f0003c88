"""The server that forks the workers of xdist: ``python -m tests.worker_server DESCRIPTOR``.

The server collects every test once, imports the modules that judging imports late, and compresses the library of reports.
Otherwise each worker would do so.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path

import pytest

from gpuwatch.report import html_page
from tests.gpuwatch import fork_server

IMPORTED = (*fork_server.IMPORTED, "scipy.optimize", "scipy.special")

if __name__ == "__main__":
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider"])  # an error is reported by every worker
    for each in IMPORTED:
        importlib.import_module(each)
    html_page.packed_plotly()
    fork_server.serve_to_the_end(int(sys.argv[1]))
