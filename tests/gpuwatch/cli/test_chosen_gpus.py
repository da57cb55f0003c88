"""Tests of --gpu: the accepted and refused names of a GPU, and the printed choice."""

from __future__ import annotations

import pytest

from annotate.evidence import Device
from gpuwatch.cli.chosen_gpus import choose, choose_of_daemon
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from tests.gpuwatch.cli.conftest import Gpuwatch

LATER = Device(uuid="GPU-11aa1111-2222-3333-4444-555555557777", name="NVIDIA H200", pci_bus_id="00000000:5D:00.0")
EARLIER = Device(uuid="GPU-9bb91111-2222-3333-4444-555555558888", name="NVIDIA H200", pci_bus_id="00000000:18:00.0")
MIG = Device(uuid="MIG-7cc71111-2222-3333-4444-555555559999", name="NVIDIA H200 MIG", pci_bus_id="00000000:5D:00.0")


@pytest.mark.parametrize(
    "name",
    [
        "1", LATER.uuid, "GPU-11aa", "11aa", "11AA", "7777", "GPU-11aa…7777", "…7777", "00000000:5D:00.0", "5d:00.0", "0000:5d:0",
    ],
)  # fmt: skip
def test_choose_accepts_every_name_of_a_gpu(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """An index follows the order of PCI addresses, and the chosen GPU is printed to standard error."""
    assert choose([name], [LATER, EARLIER]) == (LATER.uuid,)
    assert capfd.readouterr().err == f"GPU 1: NVIDIA H200, {LATER.uuid}, PCI 00000000:5D:00.0\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("2", "found '2'; GPUs here: 0 (GPU-9bb9…8888), 1 (GPU-11aa…7777)"),
        ("GPU-", "found 'GPU-', which names 2 GPUs; GPUs here: 0 (GPU-9bb9"),
        ("6:00.0", "found '6:00.0'; GPUs here"),
        ("nope", "expected an index, a UUID or an end of it, or a PCI address, found 'nope'; GPUs here: 0 ("),
        ("0,1", "expected one GPU for each name, found '0,1'; write: --gpu 0 --gpu 1"),
    ],
)
def test_choose_lists_the_gpus_for_a_name_of_none_or_several(name: str, words: str) -> None:
    with pytest.raises(UsageError, match="--gpu: ") as refused:
        choose([name], [LATER, EARLIER])
    assert words in str(refused.value)


def test_gpu_index_of_a_shared_board_is_ambiguous() -> None:
    """MIG instances share a board's index and address; only the UUIDs distinguish them."""
    with pytest.raises(UsageError, match="'1', which names 2 GPUs"):
        choose(["1"], [EARLIER, LATER, MIG])
    assert choose(["MIG-7cc7"], [EARLIER, LATER, MIG]) == (MIG.uuid,)


def test_gpu_index_is_refused_while_a_gpu_is_silent() -> None:
    with pytest.raises(UsageError, match="expected a UUID while 1 GPU does not answer, found index 0"):
        choose(["0"], [LATER], without=1)


def test_choose_of_daemon_finds_a_gpu_by_index(daemon: Settings, gpuwatch: Gpuwatch) -> None:
    (uuid,) = choose_of_daemon(["0"], daemon)
    ended = gpuwatch("run", *daemon.flags(), "--json", "-", "--gpu", "0", "--", "sleep", "0.3")
    assert ended.code == 0
    assert ended.err.startswith(f"GPU 0: SIMULATED NVIDIA H200, {uuid}, PCI ")
    assert [verdict["device"]["uuid"] for verdict in ended.data["verdicts"]] == [uuid]
