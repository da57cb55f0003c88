"""Script of the daemon that a window starts: ``python -S -P -X gpuwatch_daemon on_demand_script.py FOLDERS --NAME=VALUE …``.

Without ``site``, the daemon's start does not wait for the hooks of other packages.  FOLDERS hold installed packages.  If a
package is missing there, ``site`` adds what Python usually finds.
"""

import os
import sys
from importlib.machinery import PathFinder

_NEEDED = ("msgspec", "psutil", "pynvml", "numpy")
# asyncio and msgspec import these modules if they exist.  A window's daemon uses neither.
_UNUSED = ("ssl", "typing_extensions")

# After the folders of the standard library, as ``site`` adds them.
sys.path += [folder for folder in sys.argv.pop(1).split(os.pathsep) if folder not in sys.path]
if not all(map(PathFinder.find_spec, _NEEDED)):
    import site

    site.main()
sys.modules.update(dict.fromkeys(_UNUSED))  # type: ignore[arg-type]  # None stands for a missing module

from gpuwatch.daemon.on_demand import main  # noqa: E402 - the folders come first

sys.exit(main(sys.argv[1:]))
