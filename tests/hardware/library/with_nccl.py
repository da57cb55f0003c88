"""NCCL's own ranges on one GPU: all-reduces of one rank, out of place, on torch's current stream."""

import ctypes
import time
from pathlib import Path

import torch

FLOAT, SUM, COUNT = 7, 0, 256 << 20
bundled = sorted((Path(torch.__file__).parents[1] / "nvidia" / "nccl" / "lib").glob("libnccl.so*"))
nccl = ctypes.CDLL(str(bundled[0]) if bundled else "libnccl.so.2")


class UniqueId(ctypes.Structure):
    """NCCL's identifier of a communicator."""

    _fields_ = [("bytes", ctypes.c_char * 128)]


identifier, communicator = UniqueId(), ctypes.c_void_p()
nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]
nccl.ncclAllReduce.argtypes = [
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,
]
a, b = (torch.ones(COUNT, device="cuda") for _ in range(2))
assert nccl.ncclGetUniqueId(ctypes.byref(identifier)) == 0
assert nccl.ncclCommInitRank(ctypes.byref(communicator), 1, identifier, 0) == 0
until = time.monotonic() + 3.0
while time.monotonic() < until:
    for _ in range(20):
        assert (
            nccl.ncclAllReduce(
                a.data_ptr(), b.data_ptr(), COUNT, FLOAT, SUM, communicator, torch.cuda.current_stream().cuda_stream
            )
            == 0
        )
    torch.cuda.synchronize()
