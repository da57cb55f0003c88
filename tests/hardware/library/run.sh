#!/bin/bash
# Run the C library's test programs on a real GPU and write one table: bash tests/hardware/library/run.sh OUT_FOLDER
set -u
OUT=${1:?expected a folder for the results, found none: bash tests/hardware/library/run.sh OUT_FOLDER}
mkdir -p "$OUT"
WORK=$(mktemp -d)
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$HERE/../../.." && pwd)
LIBRARY=$ROOT/gpuwatch/libgpuwatch
export PYTHONPATH="$ROOT:${PYTHONPATH:-}" XLA_PYTHON_CLIENT_PREALLOCATE=false
cc -std=gnu11 -O2 -fPIC -shared -fvisibility=hidden -Werror=implicit-function-declaration -Wl,-z,nodelete -Wl,-z,defs -o "$LIBRARY/libgpuwatch.so" "$LIBRARY"/*.c -lpthread -ldl || exit 1
CUBLAS=$(python3 -c 'import glob, torch, os; print(sorted(glob.glob(os.path.dirname(os.path.dirname(torch.__file__)) + "/nvidia/*/lib/libcublas.so.1*"))[0])')
export CUBLAS GPUWATCH_STATE=$WORK/state GPUWATCH_SOCKET=$WORK/socket
echo "cublas: $CUBLAS"
build() { nvcc -O2 -std=c++17 -arch=sm_90 -I"$LIBRARY" "$HERE/$1.cu" -L"$LIBRARY" -lgpuwatch -Xlinker -rpath="$LIBRARY" -ldl "${@:2}" -o "$WORK/$1"; }
build plain && build google -lpthread ${BENCHMARK_FLAGS:--lbenchmark}
gpuwatch() { python3 -m gpuwatch "$@"; }
step() { echo "== $1"; shift; timeout 60 "$@" 2>&1 | cut -c1-400 | tail -n 25; }
gpuwatch daemon 2> "$OUT/daemon.log" &
DAEMON=$!
for _ in $(seq 100); do [ -S "$GPUWATCH_SOCKET" ] && break; sleep 0.1; done
step "C++ program" "$WORK/plain"
step "C++ program, device reset" "$WORK/plain" reset  # the reset destroys the stamps before the library reads them
step "Google Benchmark" "$WORK/google"
if [ -z "${ONLY_C:-}" ]; then
  step JAX python3 -m gpuwatch run --nvtx timed --label jax -- python3 "$HERE/with_jax.py"
  step CuPy python3 -m gpuwatch run --nvtx timed --label cupy -- python3 "$HERE/with_cupy.py"
  step torch python3 -m gpuwatch run --nvtx timed --label torch -- python3 "$HERE/with_torch.py"
  step NCCL python3 -m gpuwatch run --nvtx 'NCCL:ncclAllReduce' --label nccl -- python3 "$HERE/with_nccl.py"
  step "NCCL's ranges" python3 -m gpuwatch run --nvtx-list -- python3 "$HERE/with_nccl.py"
fi
. "$HERE/costs.sh"
kill "$DAEMON"
wait "$DAEMON"
python3 "$HERE/table.py" "$GPUWATCH_STATE" "$OUT/verdicts.json"
