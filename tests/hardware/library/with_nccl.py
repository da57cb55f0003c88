"""NCCL's own ranges on one GPU: all-reduces of one rank, out of place, on torch's current stream."""

import ctypes
import glob
import os
import time

import torch

FLOAT, SUM, COUNT = 7, 0, 64 << 20
folder = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia", "nccl", "lib")
nccl = ctypes.CDLL((glob.glob(f"{folder}/libnccl.so*") or ["libnccl.so.2"])[0])


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
    for _ in range(100):
        assert (
            nccl.ncclAllReduce(
                a.data_ptr(), b.data_ptr(), COUNT, FLOAT, SUM, communicator, torch.cuda.current_stream().cuda_stream
            )
            == 0
        )
    torch.cuda.synchronize()
