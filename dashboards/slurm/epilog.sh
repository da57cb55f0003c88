#!/bin/sh
# Epilog of slurmd (root, on every node, after a job): judges what the daemon saw of the job's GPUs while it ran, keeps the
# verdicts beside the job's number, and hands windows on.  It never fails, or slurmd would drain the node.
#
# A job of many phases is no benchmark, so its verdict is a hint: power caps, heat, errors, neighbours.  Benchmarks wrap
# what they measure themselves: gpuwatch run, gpuwatch.window.

notes=${GPUWATCH_SLURM_NOTES:-/run/gpuwatch-slurm}
verdicts=${GPUWATCH_SLURM_VERDICTS:-/var/lib/gpuwatch-slurm}
shared=${GPUWATCH_SLURM_SHARED:-}

job=${SLURM_JOB_ID:-}
case $job in '' | *[!0-9]*) exit 0 ;; esac
[ -f "$notes/$job" ] || exit 0
begun=$(cat "$notes/$job")
rm -f "$notes/$job"
case $begun in '' | *[!0-9]*) exit 0 ;; esac

# Slurm counts GPUs in the driver's order; the daemon knows them by UUID.
set --
old_ifs=$IFS
IFS=,
for index in ${SLURM_JOB_GPUS:-}; do
    uuid=$(nvidia-smi --id="$index" --query-gpu=uuid --format=csv,noheader 2>/dev/null) || continue
    set -- "$@" --gpu "$uuid"
done
IFS=$old_ifs

if [ $# -gt 0 ]; then
    mkdir -p -m 755 "$verdicts"
    if timeout 60 gpuwatch audit --from "@$begun" "$@" --json >"$verdicts/.$job" 2>"$verdicts/$job.log"; then
        mv "$verdicts/.$job" "$verdicts/$job.json"
        rm -f "$verdicts/$job.log"
    else
        rm -f "$verdicts/.$job"
    fi
fi

# In the background: the next job need not wait. What is interrupted is made up for after the next one.
if [ -n "$shared" ]; then
    (timeout 600 gpuwatch export --parquet "$shared" --since 7d >/dev/null 2>&1 &)
fi
exit 0
