#!/bin/sh
# Prolog of slurmd (root, on every node, before a job): notes when the job began, so that the epilog can judge it.
# It never fails: whatever is wrong with the witness, the job runs.
#
#   slurm.conf:  Prolog=/etc/slurm/prolog.d/gpuwatch   Epilog=/etc/slurm/epilog.d/gpuwatch

notes=${GPUWATCH_SLURM_NOTES:-/run/gpuwatch-slurm}

job=${SLURM_JOB_ID:-}
case $job in '' | *[!0-9]*) exit 0 ;; esac
[ -n "${SLURM_JOB_GPUS:-}" ] || exit 0

mkdir -p -m 700 "$notes" && date +%s >"$notes/$job" || exit 0
exit 0
