"""``python -m gpuwatch`` is ``gpuwatch``."""

from __future__ import annotations

import sys

from gpuwatch.cli import main

if __name__ == "__main__":
    sys.exit(main())
