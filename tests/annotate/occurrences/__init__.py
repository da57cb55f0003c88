"""Windows with hazards, for tests of all rules: each module yields those of one family of rules from ``scenes()``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from annotate.evidence import Evidence


def every_scene() -> Iterator[Evidence]:
    for module in pkgutil.iter_modules(__path__):
        yield from importlib.import_module(f"{__name__}.{module.name}").scenes()
