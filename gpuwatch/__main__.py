"""Entry point of ``python -m gpuwatch``, equal to ``gpuwatch``."""

import sys

from gpuwatch.cli import main

if __name__ == "__main__":
    sys.exit(main())
