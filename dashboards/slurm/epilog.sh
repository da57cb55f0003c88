#!/bin/sh
# Epilog of slurmd (root, on every node, after a job): keeps one JSON file per job, with the job's windows and
# the verdict on its GPUs' telemetry, and can export windows.  The epilog never fails, because slurmd would drain the node.
#
# A job of many phases is not a benchmark, so the job's verdict is a hint: power caps, heat, errors, neighbours.  Benchmarks
# wrap the measured part with gpuwatch run or gpuwatch.window.
#
# The node is free at once: slow work runs in the background, at the lowest priority, one job at a time, and judges the job's
# last hour at most.  /etc/gpuwatch/slurm.sh may set these variables:
#
#   GPUWATCH_SLURM_VERDICTS   folder of the files                      (/var/lib/gpuwatch-slurm)
#   GPUWATCH_SLURM_KEEP_DAYS  days a file is kept                      (30)
#   GPUWATCH_SLURM_JUDGED_S   judged seconds at the end of a job       (3600)
#   GPUWATCH_SLURM_LIMIT_S    seconds each of the two audits may take  (120)
#   GPUWATCH_SLURM_SHARED     folder to which windows are exported     (none)
#   GPUWATCH_SLURM_JITTER     longest wait before the export           (10m)
#   GPUWATCH_SLURM_NOTES      folder of the prolog's notes             (/run/gpuwatch-slurm)

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
settings=${GPUWATCH_SLURM_SETTINGS:-/etc/gpuwatch/slurm.sh}
# shellcheck source=/dev/null
[ -r "$settings" ] && . "$settings"
notes=${GPUWATCH_SLURM_NOTES:-/run/gpuwatch-slurm}
verdicts=${GPUWATCH_SLURM_VERDICTS:-/var/lib/gpuwatch-slurm}
keep_days=${GPUWATCH_SLURM_KEEP_DAYS:-30}
judged_s=${GPUWATCH_SLURM_JUDGED_S:-3600}
limit_s=${GPUWATCH_SLURM_LIMIT_S:-120}
shared=${GPUWATCH_SLURM_SHARED:-}

job=${SLURM_JOB_ID:-}
case $job in '' | *[!0-9]*) exit 0 ;; esac

quoted() { # prints a text as a JSON string, without control characters
    printf '"%s"' "$(printf '%s' "$1" | tr -d '\000-\037\177' | sed 's/[\\"]/\\&/g')"
}

# Prints --gpu options for the boards of the job's GPUs.  Slurm names MIG instances by UUID in CUDA_VISIBLE_DEVICES, or counts
# each instance as a GPU.  The daemon watches the board, which `nvidia-smi -L` lists above its instances.
gpu_options() {
    nvidia-smi -L 2>/dev/null | awk -v indices="${SLURM_JOB_GPUS:-}" -v named="${CUDA_VISIBLE_DEVICES:-}" '
        function counted() { if (board != "" && !divided) place[count++] = board }
        { uuid = $0; sub(/.*UUID: /, "", uuid); sub(/\).*/, "", uuid) }
        /^GPU [0-9]+:/ { counted(); board = uuid; divided = 0; of[uuid] = board; next }
        /^ +MIG / { divided = 1; place[count++] = board; of[uuid] = board }
        END {
            counted()
            if (named ~ /^(GPU|MIG)-/) {
                length_of = split(named, words, ",")
                for (i = 1; i <= length_of; i++) if (words[i] in of) wanted[of[words[i]]] = 1
            } else {
                length_of = split(indices, words, ",")
                for (i = 1; i <= length_of; i++) {
                    if (words[i] !~ /^[0-9]+(-[0-9]+)?$/) continue
                    last = split(words[i], ends, "-") == 2 ? ends[2] : ends[1]
                    for (index_of = ends[1] + 0; index_of <= last + 0 && index_of in place; index_of++) wanted[place[index_of]] = 1
                }
            }
            for (uuid in wanted) printf " --gpu %s", uuid
        }'
}

judge() { # $1: the start of the job, $2: the end of the job
    mkdir -p -m 755 "$verdicts" && cd "$verdicts" || exit 0
    name=$job
    [ "${SLURM_JOB_RESTART_COUNT:-0}" = 0 ] || name=$job-$SLURM_JOB_RESTART_COUNT
    from=$1
    [ $(($2 - from)) -le "$judged_s" ] || from=$(($2 - judged_s))
    sleep 2 # until the daemon has stored the end
    gpus=$(gpu_options)
    {
        # Unquoted, so that the shell splits the options into words.
        # shellcheck disable=SC2086
        { [ -n "$gpus" ] || { echo "expected the job's GPUs in nvidia-smi -L, found none: check PATH in $settings" >&2 && false; }; } &&
            timeout "$limit_s" gpuwatch audit --from "@$from" --to "@$2" $gpus --json >".$name.interval" ||
            echo null >".$name.interval"
        timeout "$limit_s" gpuwatch audit --since "@$1" --tag "slurm_job=$job" --json >".$name.windows" || echo null >".$name.windows"
    } 2>".$name.log"
    {
        printf '{"schema": 1, "job": "%s", "user": %s, ' "$job" "$(quoted "${SLURM_JOB_USER:-}")"
        printf '"account": %s, "partition": %s, ' "$(quoted "${SLURM_JOB_ACCOUNT:-}")" "$(quoted "${SLURM_JOB_PARTITION:-}")"
        printf '"cluster": %s, "node": %s, ' "$(quoted "${SLURM_CLUSTER_NAME:-}")" "$(quoted "${SLURMD_NODENAME:-}")"
        printf '"gpus": %s, "exit_code": %s, ' "$(quoted "${SLURM_JOB_GPUS:-}")" "$(quoted "${SLURM_JOB_EXIT_CODE2:-}")"
        printf '"begun_wall_s": %s, "ended_wall_s": %s, "judged_from_wall_s": %s, ' "$1" "$2" "$from"
        printf '"windows": %s, "interval": %s}\n' "$(cat ".$name.windows")" "$(cat ".$name.interval")"
    } >".$name.whole"
    chmod 440 ".$name.whole"
    case ${SLURM_JOB_UID:-} in '' | *[!0-9]*) ;; *) chown "$SLURM_JOB_UID" ".$name.whole" 2>/dev/null ;; esac
    mv ".$name.whole" "$name.json"
    if grep -q '^null$' ".$name.interval" ".$name.windows"; then mv ".$name.log" "$name.log"; else rm -f ".$name.log"; fi
    rm -f ".$name.interval" ".$name.windows"
    find . -maxdepth 1 -type f \( -name '*.json' -o -name '*.log' \) -mtime "+$keep_days" -delete
}

if [ "${1:-}" = --behind ]; then
    exec 9>"$notes/judging" && flock -w 3600 9 && judge "$2" "$3"
    exec 9>&-
    # One export waits at a time: windows that end meanwhile belong to the waiting or the next export.
    if [ -n "$shared" ]; then
        exec 8>"$notes/exporting" && flock -n 8 &&
            timeout 3600 gpuwatch export --parquet "$shared" --since 7d --jitter "${GPUWATCH_SLURM_JITTER:-10m}"
    fi
    exit 0
fi

[ -f "$notes/$job" ] || exit 0
begun=$(cat "$notes/$job")
rm -f "$notes/$job"
case $begun in '' | *[!0-9]*) exit 0 ;; esac
# A separate session, because slurmd kills the epilog's process group as the epilog ends.  `setsid -f` returns before its child
# has left that group; here the session exists before anything runs in the background.
# shellcheck disable=SC2016
setsid -w sh -c 'nice -n 19 "$0" --behind "$@" &' "$0" "$begun" "$(date +%s)" </dev/null >/dev/null 2>&1
exit 0
