"""Writer of docs/METRICS.md from the table of metrics: `python -m tests.gpuwatch.exporter.page`, or `--check`."""

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

Written by `python -m tests.gpuwatch.exporter.page` from `gpuwatch/exporter/metrics.py`; edit that.

```sh
gpuwatch daemon --listen {LISTEN_PORT}          # http://127.0.0.1:{LISTEN_PORT}/metrics, for this machine only
```

```yaml
scrape_configs:
  - job_name: gpuwatch
    static_configs: [{{targets: ["127.0.0.1:{LISTEN_PORT}"]}}]
```

`/metrics` speaks the text format and OpenMetrics, `/-/healthy` says that the process lives, `/-/ready` that it knows its GPUs or
knows that there are none. A daemon that a window started by itself never listens.

## What holds for every series

* **A scrape asks the driver nothing.** The page is made of what the samplers last read and of what was counted since the start, so
  that a scraper, however often it comes, neither slows a benchmark nor wakes a GPU.
* **Absent beats wrong.** What the GPU does not answer, or has not answered for three of its lane's periods (five seconds at least),
  has no series. `gpuwatch_gpu_field_supported` says which questions GPU and driver answer. There are no sentinels.
* **A lost GPU's readings vanish**, its histograms with them; `gpuwatch_gpu_up` is 0, and what the daemon counted itself stays:
  `gpuwatch_device_info`, `gpuwatch_reading_age_seconds`, `gpuwatch_losses_total`, Xids. Without a driver `gpuwatch_up` is 0 and the
  page is served all the same.
* **Dips between scrapes survive** in `gpuwatch_gpu_clock_ratio` and `gpuwatch_gpu_power_limit_ratio`: they hold every sample of the
  fast lane, 20 a second, and the SM clock's each pulse too, 100 a second while a window is open: its weight shifts to windows.
* **Counters are what their owner counts.** The driver's (energy, memory errors, replays, seconds under its reasons) begin anew when the
  driver is loaded again and go on across a restart of the daemon; the daemon's own (samples, windows, findings, Xids, sampled seconds)
  begin at zero with the daemon and go on across a driver. `increase()` and `rate()` know how to read both.
* **What `increase()` is asked of is there from zero**: windows of every status with their histograms, findings of every rule and severity,
  the known Xids of every GPU. The first of each is an increase.
* **Only `uuid` and `gpu` say which GPU.** Names, bus ids and versions are joined:
  `gpuwatch_gpu_power_watts * on(uuid) group_left(name) gpuwatch_device_info`. Windows' ids and labels, users and command lines are
  never labels; they are in the store.
* **`gpuwatch_simulated` is 1** where no real GPU is measured.
* **Idle is not throttled.** Reasons have classes: `… * on(reason) group_left(class) gpuwatch_clock_event_reason_info{{class!="benign"}}`.
* **Names are frozen.** One may be added; none is renamed or changes its meaning.

What it cannot see: the SM clock is the one the driver programmed, 8–12 % above the true mean under a power cap; only a window with
stamps knows the true one. Utilisation says that a kernel was resident, not how full the GPU was. Of MIG
instances clocks, power and heat are the board's; memory, processes and activity are each one's own (`gpuwatch_mig_…`).

Some series are **read every ten seconds at most** ("From" says so), by a thread of their own that begins with the first scrape and ends
five minutes after the last: P-state, row remaps by cause, bytes on PCIe and NVLink, NVLink's errors, MIG instances. A pass takes
0.99 ms of a processor on an H200; however many GPUs and instances there are, all passes together stay below 0.2 % of one, and come
more rarely for it. They are absent once they are three periods old. *Seen on the mock driver only* stands where no card that has it was at
hand: the driver's answers are those that `nvml.h` promises.
"""

_ACCESS = """\
## Who may read it

| Setting | Variable | Default | Meaning |
|---|---|---|---|
{settings}

On loopback everybody on the machine may read. **Beyond it the daemon refuses to start** without a certificate and without either
users or an authority that signed its clients; `--listen-insecure` lifts that where the network itself is guarded (a pod's, a
private rack's). A file of users holds a line `NAME:SHA256` each, of a password that is long and random, so that no slow hash is
needed; one at every scrape would take the measured machine's processor:

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

SIGHUP reads certificate and users again. At most eight pages are on their way at a time, a further one is answered 503. At most 128
connections are open; the oldest that no page is on its way to makes room for a further one. One that has not said in five seconds what it
wants, or is not done in ten, is ended. `/-/healthy` and `/-/ready` are answered meanwhile, and ask for no password: they say nothing of the machine.

On loopback the page is read only under a name of this machine: `localhost`, an address of loopback, the machine's host name, or the name in
`listen`. Another `Host` is answered 421, so that no page of the web can point its own name here and have a browser read the metrics. A proxy
in front of it sends `Host: localhost`. Beyond loopback every name is admitted, since discovery names hosts as it likes.
"""

_UNITS = frozenset({"hertz", "watts", "joules", "celsius", "bytes", "seconds"})
_BESIDE = """\
## Beside dcgm-exporter

Both may run on one host: gpuwatch asks through NVML and changes no setting. Queries count twice, not exporters. So choose one of three ways:

1. **Each under its own names** (the default). Names and jobs differ (`gpuwatch_…`, `job="gpuwatch"`; `DCGM_…`, `job="dcgm-exporter"`), so no
   query of one sees the other. Do not load `dashboards/dcgm-names.yml`.
2. **gpuwatch instead of dcgm-exporter.** Load `dashboards/dcgm-names.yml`: recording rules publish gpuwatch's series under DCGM's names,
   labels and units, with `job="gpuwatch"`. Stop dcgm-exporter, or dashboards that sum over `DCGM_…` without a job count each GPU twice.
3. **While you change over**, keep both and the rules, and let each dashboard and alert choose: `DCGM_FI_DEV_POWER_USAGE{job="gpuwatch"}`.
   `count by (UUID) (DCGM_FI_DEV_GPU_TEMP) > 1` shows the GPUs that are there twice.

Do not add `gpuwatch_gpu_energy_joules_total` to `DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION`, or any two series of one row below: they are one
counter of the driver, read by two programs. Join the two exporters on the GPU's UUID, which is `uuid` here and `UUID` there:

```promql
label_replace(DCGM_FI_PROF_GR_ENGINE_ACTIVE, "uuid", "$1", "UUID", "(.*)") * on (uuid) group_left (reason) (gpuwatch_gpu_clock_event_active == 1)
```

The profiling counters (`DCGM_FI_PROF_…` there, `gpuwatch_gpu_activity_ratio` and `gpuwatch_gpu_pcie_bytes_total` here) are hardware that both read,
gpuwatch through GPM and only on Hopper and later. DCGM's users report zeros while another program holds them (NVIDIA/DCGM#3, #169): where either
shows 0 under load, remove the `DCGM_FI_PROF_` lines from dcgm-exporter's list. Not run beside dcgm-exporter: no machine with both was at hand.
"""
_OTHERS = """\
## What others call it

Every name on the right stands in the table above. `dashboards/dcgm-names.yml` holds recording rules that publish ours under DCGM's names.
"""


def page() -> str:
    """Return the whole page."""
    listening = [key for key in KEYS if key.name.startswith(("listen", "exporter."))]
    rows = "\n".join(f"| `{key.name}` | `{key.variable}` | {key.write(key.default)} | {key.meaning} |" for key in listening)
    parts = [_HEAD, "## The metrics\n", _table(tuple(METRICS.values())), _ACCESS.format(settings=rows), _BESIDE, _OTHERS]
    for title, table in (("DCGM", DCGM), ("nvidia_gpu_exporter", NVIDIA_SMI), ("OpenTelemetry", OPENTELEMETRY)):
        parts.append(f"| {title} | Ours | Differs |\n|---|---|---|\n")
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
    """Return the base unit in the name; ``1`` for counts and ratios."""
    word = metric.name.removesuffix("_total").rpartition("_")[2]
    return word if word in _UNITS else "1"


def _label(metric: Metric, label: str) -> str:
    values = metric.values.get(label)
    # One row of the table lists the nine reasons; elsewhere their name suffices.
    if not values or (label == "reason" and "class" not in metric.labels and "gpu" in metric.labels):
        return f"`{label}`"
    return f"`{label}` ({' '.join(values)})"


def main(arguments: Sequence[str]) -> int:
    """Write the page; with ``--check`` return 1 if the one in the tree differs."""
    return write_or_check(PAGE, page(), "the table of metrics says", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
