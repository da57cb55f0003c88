# Cost of the library to a program, with a daemon on the real driver: nanoseconds per range, microseconds to open and end a window.
NVTX=$(dirname "$(readlink -f "$(command -v nvcc)")")/../include
TESTS=$ROOT/tests/gpuwatch/libgpuwatch
cc -O2 -I"$NVTX" -I/usr/local/cuda/include -I"$(dirname "$CUBLAS")/../include" "$TESTS/ranges.c" -o "$WORK/ranges" -ldl -lpthread
cc -O2 -I"$LIBRARY" "$TESTS/api.c" -L"$LIBRARY" -lgpuwatch -Wl,-rpath,"$LIBRARY" -o "$WORK/api" -ldl
"$WORK/ranges" > "$OUT/bare_ns.txt"
NVTX_INJECTION64_PATH=$LIBRARY/libgpuwatch.so GPUWATCH_NVTX=$'timed\nNCCL:*' "$WORK/ranges" > "$OUT/range_ns.txt"
"$WORK/api" 100 > "$OUT/edges_us.txt"
"$WORK/api" 24 700 > "$OUT/rested_us.txt"  # the daemon no longer samples the GPU for the previous window
for each in bare_ns range_ns; do sort -n "$OUT/$each.txt" | awk -v n="$each" '{v[NR]=$1} END {print n, "median", v[int((NR+1)/2)], "upper", v[int(NR/2+0.98*sqrt(NR)+1)], "most", v[NR]}'; done
for each in edges:1 edges:2 rested:1; do cut -d' ' -f${each#*:} "$OUT/${each%:*}_us.txt" | sort -n | awk -v n="$each us" '{v[NR]=$1} END {print n, "median", v[int((NR+1)/2)], "upper", v[int(NR/2+0.98*sqrt(NR)+1)], "p95", v[int(NR*0.95)], "most", v[NR]}'; done
