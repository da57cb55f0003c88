"""Honest programs on a real GPU in plain windows: torch, CuPy, JAX and C++, after a pause, and in a PID namespace.

    python -m tests.hardware.programs OUT

Each Python program does the same work for 4 s before, in and after the window, and prints the window's calls per second over
the mean of both others, minus 1.  C++ runs under ``gpuwatch run``, and alone before and after it.  ``OUT/essays.json`` and ``OUT/essays.capsule`` have the form
of ``essays.py``; the card's settings stay unchanged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TypeAlias

from annotate.capsule.pack import pack
from gpuwatch.config.settings import Settings
from gpuwatch.store import Reader
from tests.gpuwatch.live import running

Row: TypeAlias = dict[str, Any]

_WINDOW = """
import json, sys, time
import gpuwatch
from gpuwatch.config import settings as config
{make}
def rate(seconds):
    begin, count = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        for _ in range(50):
            call()
        wait()
        count += 50
    return count / (time.monotonic() - begin)
rate({warm_s})
before = rate(4.0)
time.sleep({pause_s})
with gpuwatch.window(sys.argv[1], settings=config.load(dict(state=sys.argv[2], socket=sys.argv[3]))) as window:
    inside = rate(4.0)
print(json.dumps(dict(run=window.run_id, deviation_ratio=2 * inside / (before + rate(4.0)) - 1)))
"""
_TORCH = """
import torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
out = torch.empty_like(a)
call, wait = lambda: torch.mm(a, a, out=out), torch.cuda.synchronize
"""
_CUPY = """
import cupy
a = cupy.random.default_rng(0).standard_normal(1 << 27, dtype=cupy.float32)
out = cupy.empty_like(a)
call, wait = lambda: cupy.multiply(a, 1.5, out=out), cupy.cuda.Device().synchronize
"""
_JAX = """
import jax, jax.numpy as jnp
a = jax.random.normal(jax.random.key(0), (4096, 4096), dtype=jnp.bfloat16)
product = jax.jit(lambda x: x @ x)
last = [product(a)]
def call():
    last[0] = product(a)
wait = lambda: last[0].block_until_ready()
"""
_CPP = r"""
#include <chrono>
#include <cstdio>
__global__ void scale(const float4* in, float4* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float4 v = in[i]; out[i] = make_float4(v.x * 2, v.y * 2, v.z * 2, v.w * 2); }
}
int main() {
  const int n = 1 << 26;
  float4 *in, *out;
  cudaMalloc(&in, n * sizeof(float4)); cudaMalloc(&out, n * sizeof(float4)); cudaMemset(in, 1, n * sizeof(float4));
  auto begin = std::chrono::steady_clock::now();
  long calls = 0;
  while (std::chrono::steady_clock::now() - begin < std::chrono::seconds(6)) {
    for (int k = 0; k < 50; ++k, ++calls) scale<<<n / 256, 256>>>(in, out, n);
    cudaDeviceSynchronize();
  }
  std::printf("%ld calls\n", calls);
  return cudaGetLastError();
}
"""
# Name, factory of the call, seconds of warm-up and of pause before the window.
PYTHON = (
    ("torch, warmed", _TORCH, 3.5, 0.0),
    ("torch, 1 s after a pause", _TORCH, 3.5, 1.0),
    ("CuPy, warmed", _CUPY, 1.0, 0.0),
    ("JAX, warmed", _JAX, 3.5, 0.0),
)
_UNSEEN = ("unshare", "--pid", "--fork", "--mount-proc")


def taken(settings: Settings) -> list[Row]:
    rows = [_python(settings, *each) for each in PYTHON]
    rows.append(_python(settings, "CuPy, in a PID namespace of its own", _CUPY, 1.0, 0.0, before=_UNSEEN))
    with tempfile.TemporaryDirectory(prefix="gwc") as folder:
        source, program = Path(folder) / "scale.cu", Path(folder) / "scale"
        source.write_text(_CPP)
        subprocess.run(["nvcc", "-O2", "-arch=sm_90", "-o", str(program), str(source)], check=True)
        rows.append(_command(settings, "C++, a whole program under gpuwatch run", [str(program)]))
    return rows


def _python(settings: Settings, name: str, make: str, warm_s: float, pause_s: float, *, before: tuple[str, ...] = ()) -> Row:
    text = _WINDOW.format(make=make, warm_s=warm_s, pause_s=pause_s)
    command = [*before, sys.executable, "-c", text, name, str(settings.state), str(settings.socket)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"condition": name, "failed": f"exit code {done.returncode}"}
    return {"condition": name, **json.loads(done.stdout.splitlines()[-1])}


def _command(settings: Settings, name: str, command: list[str]) -> Row:
    with Reader(settings.state) as reader:
        known = {run.id for run in reader.runs()}
    flags = ["--state", str(settings.state), "--socket", str(settings.socket)]
    before = _calls(command)
    inside = _calls([sys.executable, "-m", "gpuwatch", *flags, "run", "--name", name, "--", *command])
    deviation_ratio = 2 * inside / (before + _calls(command)) - 1
    with Reader(settings.state) as reader:
        fresh = [run.id for run in reader.runs() if run.id not in known]
    if not fresh:
        return {"condition": name, "failed": "no window was stored"}
    return {"condition": name, "run": fresh[0], "deviation_ratio": deviation_ratio}


def _calls(command: list[str]) -> int:
    """Return the count of calls that the program prints on a line of its own."""
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    return next(int(line.split()[0]) for line in printed.splitlines() if line.endswith(" calls"))


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    os.environ["PATH"] += ":/usr/local/cuda/bin"
    with tempfile.TemporaryDirectory(prefix="gw") as folder, running(Path(folder), "nvml") as live:
        rows = taken(live.settings)
        for row in rows:
            print(row, flush=True)
        time.sleep(2.0)  # wait until the last readings are stored
        done = [row for row in rows if "run" in row]
        with Reader(live.settings.state) as reader:
            runs = [reader.run(row["run"]) for row in done]
            (out / "essays.capsule").write_bytes(pack([reader.evidence(run, run.uuids[0]) for run in runs]))
        rows = [{"date": time.strftime("%Y-%m-%d"), "experiment": "programs", **row} for row in done]
        (out / "essays.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
