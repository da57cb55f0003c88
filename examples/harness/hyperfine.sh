#!/bin/sh
# Run hyperfine with the times in a window: one benchmark per call, because a window holds the times of one series.
# Usage: hyperfine.sh [HYPERFINE'S OPTIONS] COMMAND
set -eu
file=$(mktemp -d)/hyperfine.json
exec gpuwatch run --times "$file" -- hyperfine --export-json "$file" "$@"
