#!/usr/bin/env bash
# Starts a daemon on simulated GPUs, windows on it, and, if the programs are installed, Prometheus with the rules and Grafana
# with the dashboards. All programs listen on this machine only, keep data in a temporary folder, and end with this script.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD/dashboards
: "${SOURCE:=simulated:fleet}" "${DAEMON_PORT:=9836}" "${PROMETHEUS_PORT:=9090}" "${GRAFANA_PORT:=3000}" "${SCRAPE:=5s}"

if [ -n "${GPUWATCH:-}" ]; then
  read -ra gpuwatch <<<"$GPUWATCH"
elif [ -x .venv/bin/gpuwatch ]; then
  gpuwatch=("$PWD/.venv/bin/gpuwatch")
else
  gpuwatch=(gpuwatch)
fi

folder=$(mktemp -d)
windows=
stop() {
  trap - EXIT
  kill -- ${windows:+-$windows} 2>/dev/null || true
  # shellcheck disable=SC2046 # one word per process
  kill $(jobs -p) 2>/dev/null || true
  wait
  rm -rf "$folder"
}
trap stop EXIT
trap 'exit 0' INT TERM

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
await() { # PORT PID NAME
  until answers "$1"; do
    kill -0 "$2" 2>/dev/null || { echo "$3 ended before it answered on port $1" >&2; exit 1; }
    sleep 0.2
  done
}
refuse() { if answers "$1"; then echo "port $1 is taken: set $2 to a free port" >&2; exit 1; fi; }
refuse "$DAEMON_PORT" DAEMON_PORT

here_is=(--source "$SOURCE" --state "$folder/state" --socket "$folder/socket")
"${gpuwatch[@]}" "${here_is[@]}" daemon --listen "127.0.0.1:$DAEMON_PORT" &
await "$DAEMON_PORT" $! "the daemon"
echo "metrics     http://127.0.0.1:$DAEMON_PORT/metrics"
set -m # a separate process group, ended as a whole: otherwise its window would start another daemon
while sleep 3; do "${gpuwatch[@]}" "${here_is[@]}" run --name demo -- sleep 2; done >/dev/null 2>&1 &
windows=$!
set +m

if command -v prometheus >/dev/null; then
  refuse "$PROMETHEUS_PORT" PROMETHEUS_PORT
  cp "$here/alerts.yml" "$here/recording.yml" "$folder"
  sed "s/127.0.0.1:9836/127.0.0.1:$DAEMON_PORT/; s/_interval: .*/_interval: $SCRAPE/" "$here/prometheus.yml" >"$folder/prometheus.yml"
  prometheus --config.file="$folder/prometheus.yml" --storage.tsdb.path="$folder/tsdb" --log.level=warn \
    --web.listen-address="127.0.0.1:$PROMETHEUS_PORT" &
  await "$PROMETHEUS_PORT" $! Prometheus
  echo "prometheus  http://127.0.0.1:$PROMETHEUS_PORT/alerts"
else
  echo "prometheus is not installed here: scrape the page above with dashboards/prometheus.yml"
fi

grafana=
command -v grafana-server >/dev/null && grafana=grafana-server
command -v grafana >/dev/null && grafana="grafana server"
if [ -n "$grafana" ]; then
  refuse "$GRAFANA_PORT" GRAFANA_PORT
  export GPUWATCH_DASHBOARDS=$here GPUWATCH_PROMETHEUS=http://127.0.0.1:$PROMETHEUS_PORT
  export GF_PATHS_PROVISIONING=$here/provisioning GF_PATHS_DATA=$folder/grafana GF_PATHS_LOGS=$folder/grafana
  export GF_SERVER_HTTP_ADDR=127.0.0.1 GF_SERVER_HTTP_PORT=$GRAFANA_PORT GF_LOG_LEVEL=warn GF_AUTH_ANONYMOUS_ENABLED=true
  # shellcheck disable=SC2086 # two words for a subcommand
  $grafana --homepath "${GRAFANA_HOME:-/usr/share/grafana}" &
  await "$GRAFANA_PORT" $! Grafana
  echo "grafana     http://127.0.0.1:$GRAFANA_PORT/d/gpuwatch-fleet"
else
  echo "grafana is not installed here: import dashboards/*.json, or read python -m dashboards.show http://127.0.0.1:$PROMETHEUS_PORT"
fi
echo "ctrl-c ends all programs"
wait -n
