"""One worker of xdist, as forked by ``worker_server``: execnet sends the worker's program through standard input."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    exec(eval(sys.stdin.readline()))
