"""A matrix product and a copy under NVBench's Python binding (package cuda-bench), with torch.

    gpuwatch run -- python nvbench_gemm.py --jsonbin r.json --benchmark gemm
    gpuwatch judge r.json
    gpuwatch compare before.json r.json

``--jsonbin`` keeps each sample's time and true clock, so that gpuwatch can convert the times to one clock.  The lower
threshold stops NVBench from discarding samples of a capped GPU and pausing after each, which would keep only cool samples.
"""

import sys

import cuda.bench as bench
import torch

SIZE = 4096


def stream_of(provider: object, device: int | None) -> torch.cuda.ExternalStream:
    # The types of torch's CPU build lack this class.
    return torch.cuda.ExternalStream(provider.addressof(), device=torch.device("cuda", device or 0))  # type: ignore[attr-defined]  # no stub


@bench.register()
@bench.option.throttle_threshold(0.25)
def gemm(state: bench.State) -> None:
    device = state.get_device()
    with torch.cuda.stream(stream_of(state.get_stream(), device)):
        a = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16)
        b = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16)
        out = torch.empty(SIZE, SIZE, device="cuda", dtype=torch.float16)
        torch.matmul(a, b, out=out)  # cuBLAS allocates at its first call on a stream, and would wait for NVBench's own kernel

    def launch(launched: bench.Launch) -> None:
        with torch.cuda.stream(stream_of(launched.get_stream(), device)):
            torch.matmul(a, b, out=out)

    state.exec(launch)


@bench.register()
@bench.option.throttle_threshold(0.25)
def copy(state: bench.State) -> None:
    device = state.get_device()
    with torch.cuda.stream(stream_of(state.get_stream(), device)):
        source = torch.randn(1 << 28, device="cuda")
        target = torch.empty_like(source)

    def launch(launched: bench.Launch) -> None:
        with torch.cuda.stream(stream_of(launched.get_stream(), device)):
            target.copy_(source)

    state.exec(launch)


if __name__ == "__main__":
    bench.run_all_benchmarks(sys.argv)
