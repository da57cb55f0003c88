"""Windows with the hazards of each family, for tests of all rules: one module per family, each with ``scenes()``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from annotate.evidence import Evidence


def every_scene() -> Iterator[Evidence]:
    for module in pkgutil.iter_modules(__path__):
        yield from importlib.import_module(f"{__name__}.{module.name}").scenes()
