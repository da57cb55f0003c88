"""Writer of docs/METRICS.md from the table of metrics; `--check` only compares."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gpuwatch.config.keys import KEYS, LISTEN_PORT
from gpuwatch.exporter.metrics import METRICS, Metric
from tests.generated_page import write_or_check
from tests.gpuwatch.exporter.other_exporters import DCGM, NVIDIA_SMI, OPENTELEMETRY

PAGE = Path("docs/METRICS.md")

_HEAD = f"""\
# Metrics

`python -m tests.gpuwatch.exporter.page` writes this page from the metrics in `gpuwatch/exporter/metrics.py`, the
settings in `gpuwatch/config/keys.py` and its own text.

```sh
gpuwatch daemon --listen {LISTEN_PORT}          # http://127.0.0.1:{LISTEN_PORT}/metrics, only for local users
```

```yaml
scrape_configs:
  - job_name: gpuwatch
    static_configs: [{{targets: ["127.0.0.1:{LISTEN_PORT}"]}}]
```

`/metrics` answers in the text format and in OpenMetrics. `/-/healthy` answers while the process runs. `/-/ready` answers 200
once every GPU has given a reading or no GPU was found, at the latest about five seconds after the start. A daemon that a window starts
never listens.

## Rules for every series

* **A scrape makes no driver call.** The page has the samplers' last readings and the counts since the start, so no scrape waits for
  the driver. For a minute after a scrape the daemon reads an idle GPU as often as for a client.
* **A missing value has no series.** A signal without an answer for three periods of its lane (at least five seconds) is missing.
  `gpuwatch_gpu_field_supported` shows the fields that GPU and driver support. There are no sentinel values.
* **The readings of a lost GPU and their histograms are missing.** `gpuwatch_gpu_up` is 0, and the daemon's own figures stay, such as
  `gpuwatch_device_info`, `gpuwatch_reading_age_seconds`, `gpuwatch_losses_total` and Xids. Without a driver `gpuwatch_up` is 0, and the
  page is still served.
* **Histograms include dips between scrapes.** `gpuwatch_gpu_clock_ratio` and `gpuwatch_gpu_power_limit_ratio` count every sample of the
  fast lane (20 per second, fewer on an idle GPU). `gpuwatch_gpu_clock_ratio` also counts each pulse of the SM clock
  (every 10 ms between rows while a window is open), so windows weigh more.
* **The driver's counters are unchanged** (energy, memory errors, replays, seconds under its reasons). They restart at zero when the
  driver is loaded again and survive a restart of the daemon.
* **The daemon's counters** (samples, windows, findings, Xids, sampled seconds) restart at zero with the daemon and survive a reload of the
  driver. `increase()` and `rate()` handle both kinds.
* **Counters for alerts exist from zero on**, so the first event is an increase: windows of every status with their histograms, findings of
  every rule and severity, and the known Xids of every GPU.
* **Only `uuid` and `gpu` identify a GPU.** Join names, bus ids and versions:
  `gpuwatch_gpu_power_watts * on(uuid) group_left(name) gpuwatch_device_info`. Ids and labels of windows, users and command lines are
  never labels; the store has them.
* **`gpuwatch_simulated` is 1** if the source is not a real GPU.
* **Idle is not throttled.** Reasons have classes: `… * on(reason) group_left(class) gpuwatch_clock_event_reason_info{{class!="benign"}}`.
* **Names are frozen.** Releases may add names, but never rename one or change its meaning.

Limits: the SM clock is the clock that the driver reports, 8–12 % above the true mean under a power cap; only stamps in a window measure
the true clock. Utilisation is the time with a resident kernel, not the share of the GPU in use. On a board with MIG instances, clocks,
power and heat are the board's; each instance has its own memory, processes and activity (`gpuwatch_mig_…`).

The series with "read at most once in ten seconds" in the column "From" are P-state, row remaps by cause, bytes on PCIe and NVLink, states
and errors of NVLinks, and MIG instances. A separate thread reads these values from the first scrape until five minutes after the last. One
pass takes 0.99 ms of CPU time on an H200; the thread lengthens its period so that all passes together stay below 0.2 % of a core. These
series are absent after three periods without an answer. *Seen on the mock driver only* marks series that no available card has; the mock
driver answers as `nvml.h` documents.
"""

_ACCESS = """\
## Access

| Setting | Variable | Default | Meaning |
|---|---|---|---|
{settings}

By default every local user may read the page on loopback. **Elsewhere the daemon refuses to start** without a certificate, or without
either users or an authority that signs client certificates; `--listen-insecure` permits this on a protected network (for example in a pod
or a private rack). A users file has lines of the form `NAME:SHA256`. Use long random passwords: they need no slow hash, which would use the measured
machine's CPU time at every scrape:

```sh
PASSWORD=$(openssl rand -base64 24)
printf 'prometheus:%s\\n' "$(printf %s "$PASSWORD" | sha256sum | cut -d' ' -f1)" > /etc/gpuwatch/users
```

```toml
# /etc/gpuwatch/config.toml
listen = "0.0.0.0:9836"
[exporter]
certificate = "/etc/gpuwatch/tls.pem"
key = "/etc/gpuwatch/tls.key"
users = "/etc/gpuwatch/users"             # or client_ca = "/etc/gpuwatch/clients.pem", or both
```

```yaml
scrape_configs:
  - job_name: gpuwatch
    scheme: https
    tls_config: {{ca_file: /etc/prometheus/gpuwatch-ca.pem}}
    basic_auth: {{username: prometheus, password_file: /etc/prometheus/gpuwatch-password}}
```

SIGHUP reloads certificate and users. The daemon sends at most eight pages at a time and answers further scrapes with 503. At most 128
connections are open; a new one replaces the oldest that is not receiving a page. A connection ends after five seconds without a complete
request, or after ten seconds in total. `/-/healthy` and `/-/ready` need no password and answer while eight pages are sent: they contain no
data about the machine. With `client_ca` they need a client certificate.

On loopback a `Host` header must name this machine: `localhost` or a name below it, a loopback address, the machine's host name, or the
name in `listen`. The daemon answers other names with 421, except at the two probes: no web page can point its own name here and read the metrics. A
proxy must send `Host: localhost`. Elsewhere the page allows every name, because service discovery chooses the names.
"""

_UNITS = frozenset({"hertz", "watts", "joules", "celsius", "bytes", "seconds"})
_WITH_DCGM = """\
## With dcgm-exporter

Both can run on one host: gpuwatch reads through NVML and changes no setting. Queries that include both exporters count each GPU twice.
Choose one of three ways:

1. **Separate names** (the default). Names and jobs differ (`gpuwatch_…`, `job="gpuwatch"`; `DCGM_…`, `job="dcgm-exporter"`), so no
   query of one includes the other. Do not load `dashboards/dcgm-names.yml`.
2. **gpuwatch instead of dcgm-exporter.** Load `dashboards/dcgm-names.yml`: recording rules publish gpuwatch's series under DCGM's names,
   labels and units, with `job="gpuwatch"`. Stop dcgm-exporter; otherwise dashboards that sum over `DCGM_…` without a job count each GPU twice.
3. **During a migration**, keep both and the rules, and select a job in each dashboard and alert: `DCGM_FI_DEV_POWER_USAGE{job="gpuwatch"}`.
   `count by (UUID) (DCGM_FI_DEV_GPU_TEMP) > 1` shows the GPUs that are counted twice.

Do not add two series of one row below, such as `gpuwatch_gpu_energy_joules_total` and `DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION`: both programs
read the same counter of the driver. Join the two exporters on the GPU's UUID: `uuid` in gpuwatch, `UUID` in DCGM:

```promql
label_replace(DCGM_FI_PROF_GR_ENGINE_ACTIVE, "uuid", "$1", "UUID", "(.*)") * on (uuid) group_left (reason) (gpuwatch_gpu_clock_event_active == 1)
```

The profiling counters (`DCGM_FI_PROF_…` in DCGM, `gpuwatch_gpu_activity_ratio` and `gpuwatch_gpu_pcie_bytes_total` in gpuwatch) come from the
same hardware; gpuwatch reads it through GPM, on Hopper and later. Users of DCGM report zeros while another program uses these counters
(NVIDIA/DCGM#3, #169). If either exporter shows 0 under load, remove the `DCGM_FI_PROF_` lines from dcgm-exporter's list. This was not tested:
no machine with both exporters was available.
"""
_OTHERS = """\
## Names in other exporters

The table above explains every name of gpuwatch. The recording rules in `dashboards/dcgm-names.yml` publish gpuwatch's series under DCGM's names.
"""


def page() -> str:
    """Return the whole page."""
    listening = [key for key in KEYS if key.name.startswith(("listen", "exporter."))]
    rows = "\n".join(f"| `{key.name}` | `{key.variable}` | {key.write(key.default)} | {key.meaning} |" for key in listening)
    parts = [_HEAD, "## The metrics\n", _table(tuple(METRICS.values())), _ACCESS.format(settings=rows), _WITH_DCGM, _OTHERS]
    for title, table in (("DCGM", DCGM), ("nvidia_gpu_exporter", NVIDIA_SMI), ("OpenTelemetry", OPENTELEMETRY)):
        parts.append(f"| {title} | gpuwatch | Difference |\n|---|---|---|\n")
        parts[-1] += "".join(f"| `{theirs}` | `{ours}` | {differs} |\n" for theirs, ours, differs in table)
    return "\n".join(parts)


def _table(metrics: Sequence[Metric]) -> str:
    lines = ["| Metric | Type | Labels | Unit | Meaning | From |", "|---|---|---|---|---|---|"]
    for metric in metrics:
        meaning = metric.help
        if metric.buckets:
            meaning += " Up to " + ", ".join(f"{bound:g}" for bound in metric.buckets) + "."
        labels = ", ".join(_label(metric, label) for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind.value} | {labels} | {_unit(metric)} | {meaning} | {metric.of} |")
    return "\n".join(lines) + "\n"


def _unit(metric: Metric) -> str:
    """Return the unit in the metric's name, a base unit or a base unit per second; otherwise ``1``."""
    last = metric.name.removesuffix("_total").removesuffix("_per_second").rpartition("_")[2]
    if last not in _UNITS:
        return "1"
    return f"{last} per second" if metric.name.endswith("_per_second") else last


def _label(metric: Metric, label: str) -> str:
    values = metric.values.get(label)
    # Only one row of the table lists the reasons.
    if not values or (label == "reason" and "class" not in metric.labels and "gpu" in metric.labels):
        return f"`{label}`"
    return f"`{label}` ({' '.join(values)})"


def main(arguments: Sequence[str]) -> int:
    """Write the page, or with ``--check`` return 1 if docs/METRICS.md differs; otherwise return 0."""
    return write_or_check(PAGE, page(), "the table of metrics", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
