"""Python's startup module under `gpuwatch run --auto`, which puts this folder first on the PYTHONPATH of the program."""

import importlib
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would slow down every start of Python


def _run_hidden() -> None:
    """Import the environment's own sitecustomize, which this module hides, if there is one."""
    sys.path[:] = [each for each in sys.path if os.path.abspath(each or ".") != _HERE]  # noqa: PTH100 - as above
    here = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if here is not None:
            sys.modules["sitecustomize"] = here


if __name__ == "sitecustomize":  # False if imported as part of the package
    if os.environ.get("GPUWATCH_AUTO") == "1":
        importlib.import_module("gpuwatch_import_hook").install()
    _run_hidden()
