#!/bin/sh
# A gate without a CI system: the first unspoiled run saves a baseline, and each later run is compared with the baseline.
# Usage: gate.sh BASELINE COMMAND...    Exit code: COMMAND's if COMMAND failed, else 0 pass, 1 fail, 75 neutral.
set -eu
baseline=$1
shift
if [ -e "$baseline" ]; then
  exec gpuwatch ci --baseline "$baseline" --retry 1 --neutral-exit 75 -- "$@"
fi
exec gpuwatch ci --retry 1 --neutral-exit 75 --save "$baseline" -- "$@"
