"""Printer of the folder with the header, the library, and the CMake and pkg-config files."""

import sys

from gpuwatch.libgpuwatch import FOLDER

sys.stdout.write(f"{FOLDER}\n")
