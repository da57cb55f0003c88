"""Print the folder of header, library and CMake and pkg-config files."""

import sys

from gpuwatch.libgpuwatch import FOLDER

sys.stdout.write(f"{FOLDER}\n")
