"""The server that forks the workers of xdist: ``python -m tests.worker_server DESCRIPTOR``.

The server collects every test once.  Otherwise each worker would import every test file.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest

from tests.gpuwatch import fork_server

if __name__ == "__main__":
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider"])  # an error is reported by every worker
    fork_server.serve_to_the_end(int(sys.argv[1]))
