#!/bin/sh
# Prolog of slurmd (root, on every node, before a job): notes the start of the job, so that the epilog can judge the job.
# The prolog never fails: the job runs even if gpuwatch is broken.
#
#   slurm.conf:  Prolog=/etc/slurm/prolog.d/gpuwatch   Epilog=/etc/slurm/epilog.d/gpuwatch
#
# slurmd gives its scripts neither PATH nor its own environment: /etc/gpuwatch/slurm.sh may set the variables below.

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
settings=${GPUWATCH_SLURM_SETTINGS:-/etc/gpuwatch/slurm.sh}
# shellcheck source=/dev/null
[ -r "$settings" ] && . "$settings"
notes=${GPUWATCH_SLURM_NOTES:-/run/gpuwatch-slurm}

job=${SLURM_JOB_ID:-}
case $job in '' | *[!0-9]*) exit 0 ;; esac
[ -n "${SLURM_JOB_GPUS:-}" ] || exit 0

mkdir -p -m 700 "$notes" && date +%s >"$notes/$job"
# Delete notes of jobs whose epilog never ran: no job runs for 60 days.
find "$notes" -maxdepth 1 -type f -name '[0-9]*' -mtime +60 -delete 2>/dev/null
exit 0
