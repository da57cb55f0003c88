"""The long campaign of the C library's fuzzer: ``python -m tests.gpuwatch.libgpuwatch.fuzz_campaign SEQUENCES``.

Four threads run under ASan and UBSan, four threads with forks under UBSan, and 64 threads with a tenth of the sequences under
TSan.  Each run is made with and without a mock CUDA driver.  Under ASan or TSan a forked child can hang in the allocator's locks.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.gpuwatch.libgpuwatch import built

NO_FORKS = "-DNO_FORKS"
PATTERNS = "timed\nstep\nNCCL:*\n*e*d"


def run(fuzz: Path, sequences_count: int, threads_count: int, driver: Path | None) -> subprocess.CompletedProcess[str]:
    """Run the fuzzer, which prints the number of requests for windows; standard error has the sanitizers' messages."""
    folder = fuzz.parent
    (folder / "report").write_text("")
    environment = {
        "GPUWATCH_SOCKET": str(folder / "fuzz.sock"), "GPUWATCH_NVTX": PATTERNS, "GPUWATCH_NVTX_REPORT": str(folder / "report"),
        "PATH": "/nowhere", "LD_LIBRARY_PATH": str(driver or ""),
    }  # fmt: skip
    arguments = [str(fuzz), str(sequences_count), str(threads_count), "1"]
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)


def main(sequences_count: int) -> int:
    """Run the campaign and print each result; return 1 if a run failed, otherwise 0."""
    failed = False
    with tempfile.TemporaryDirectory(prefix="gw") as name:
        driver = built.shared(Path(name) / "driver", "libcuda.so.1", "fake_cuda.c").parent
        for sanitizers, threads_count, defined in (
            ("address,undefined", 4, (NO_FORKS,)),
            ("undefined", 4, ()),
            ("thread", 64, (NO_FORKS,)),
        ):
            folder = Path(name) / sanitizers.replace(",", "-")
            folder.mkdir()
            fuzz = built.fuzzer(folder, sanitizers, *defined)
            share = sequences_count if threads_count == 4 else sequences_count // 10
            for given in (None, driver):
                done = run(fuzz, share, threads_count, given)
                windows = done.stdout.strip() or "no windows"
                stamps = "with stamps" if given else "without stamps"
                print(
                    f"{sanitizers}, {threads_count} threads, {share} sequences {stamps}: {windows}, code {done.returncode}",
                    flush=True,
                )
                sys.stderr.write(done.stderr)
                failed = failed or done.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
