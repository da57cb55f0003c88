"""Tests of a GPU's process list."""

from __future__ import annotations

import pytest

from annotate.evidence import Visibility
from gpuwatch.host.processes import Identities, Identity
from gpuwatch.sources.nvml.process_lists import ProcessLists
from tests.gpuwatch.sources.nvml_double import BOARD, NOT_SUPPORTED, UUID, Library, binding, nvml


def lists(library: Library, visibility: Visibility = Visibility.HOST) -> ProcessLists:
    api = binding(library)
    handle = api.c_nvmlDevice_t(api.struct_c_nvmlDevice_t.from_address(BOARD))
    named = Identities(lambda pid: Identity(name=f"name-{pid}", user="me", started_s=1.0))
    return ProcessLists(api, UUID, handle, named, visibility)


def test_listed_process_has_its_name_and_memory() -> None:
    (process,), whole = lists(Library(processes=[(408, 2_355_000_000)])).processes(utilization=False)
    assert (process.pid, process.name, process.memory_bytes, process.listed) == (408, "name-408", 2_355_000_000, True)
    assert process.utilization_ratio is None
    assert whole


def test_utilization_starts_at_a_cursor_and_drops_bad_entries() -> None:
    """The first read of the utilisation record only sets the cursor; later reads drop old entries and shares above 100 %."""
    library = Library(processes=[(408, 1)], utilization=[(408, 100, 98)])
    asked = lists(library)
    assert asked.processes(utilization=True)[0][0].utilization_ratio is None
    library.utilization = [(408, 100, 98)]  # the same entry again
    assert asked.processes(utilization=True)[0][0].utilization_ratio is None
    library.utilization = [(408, 300, 97), (408, 200, 3), (409, 300, 4_000_000_000)]
    (process,), _ = asked.processes(utilization=True)
    assert process.pid == 408
    assert process.utilization_ratio == pytest.approx(0.97)


@pytest.mark.parametrize(("visibility", "name"), [(Visibility.HOST, "name-77"), (Visibility.NAMESPACE, None)])
def test_process_seen_only_by_utilization_is_unlisted(visibility: Visibility, name: str | None) -> None:
    """A process that only the utilisation record names is unlisted, and has no name outside the host's PID namespace."""
    library = Library(utilization=[(77, 100, 1)])
    asked = lists(library, visibility)
    asked.processes(utilization=True)
    library.utilization = [(77, 200, 98), (78, 200, 0)]
    (process,), _ = asked.processes(utilization=True)
    assert (process.pid, process.listed, process.memory_bytes, process.name) == (77, False, None, name)


@pytest.mark.parametrize("code", [0, 6])
def test_utilization_is_none_without_samples(code: int) -> None:
    """An empty record gives no share, and neither does the code NotFound."""
    library = Library(processes=[(1, 1)], errors={"nvmlDeviceGetProcessUtilization": code} if code else {})
    library.utilization = [] if code else library.utilization
    (process,), _ = lists(library).processes(utilization=True)
    assert process.utilization_ratio is None


def test_utilization_after_a_failed_first_call_is_unknown() -> None:
    """Without a cursor the driver averages its whole record, also after a call that failed."""
    library = Library(processes=[(1, 1)], errors={"nvmlDeviceGetProcessUtilization": NOT_SUPPORTED}, utilization=[(1, 100, 98)])
    asked = lists(library)
    asked.processes(utilization=True)
    library.errors.clear()
    assert asked.processes(utilization=True)[0][0].utilization_ratio is None
    library.utilization = [(1, 200, 97)]
    assert asked.processes(utilization=True)[0][0].utilization_ratio == pytest.approx(0.97)


def test_unanswered_process_list_has_unknown_visibility() -> None:
    source, _ = nvml(errors={"nvmlDeviceGetComputeRunningProcesses_v3": NOT_SUPPORTED})
    process_list = source.read_process_list(UUID)
    assert process_list.processes == ()
    assert process_list.visibility == Visibility.UNKNOWN
