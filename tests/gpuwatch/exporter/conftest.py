"""A fleet of one simulated GPU and its served page, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuwatch.exporter.http_server import HttpServer
from tests.gpuwatch.exporter.fleet import Fleet
from tests.gpuwatch.exporter.page_server import serving


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    found = Fleet("steady-gemm")
    found.play(1)
    return found


@pytest.fixture(scope="module")
def web(fleet: Fleet) -> Iterator[HttpServer]:
    with serving(fleet) as found:
        yield found
