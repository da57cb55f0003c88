"""The server that forks the workers of xdist: ``python -m tests.worker_server DESCRIPTOR``.

The server collects every test once, and imports the modules that judging imports late.  Otherwise each worker would import
them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path

import pytest

from tests.gpuwatch import fork_server

IMPORTED = (*fork_server.IMPORTED, "scipy.optimize", "scipy.special")

if __name__ == "__main__":
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider"])  # an error is reported by every worker
    for each in IMPORTED:
        importlib.import_module(each)
    fork_server.serve_to_the_end(int(sys.argv[1]))
