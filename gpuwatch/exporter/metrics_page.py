"""One page being filled: series go in by name, and only names, labels and values of the table come out."""

from collections.abc import Iterator
from functools import cache

from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from gpuwatch.exporter.counters import Buckets
from gpuwatch.exporter.metrics import METRICS, MetricKind


class MetricsPage:
    """The families of one scrape."""

    def __init__(self) -> None:
        self._samples: dict[str, list[Sample]] = {name: [] for name in METRICS}

    def put(self, name: str, value: float | None, *labels: str) -> None:
        """A sample; ``None`` and what is no number was not observed and gives none."""
        if value is None or value != value:
            return
        own = dict(zip(METRICS[name].labels, labels, strict=True))
        self._samples[name].append(Sample(name, own, float(value)))

    def histogram(self, name: str, buckets: Buckets, *labels: str, from_zero: bool = False) -> None:
        """Put a histogram's samples.  One that never saw a value gives none, unless its increases are asked for from zero."""
        count = sum(buckets.counts)
        if not count and not from_zero:
            return
        own = dict(zip(METRICS[name].labels, labels, strict=True))
        samples, sofar = self._samples[name], 0
        for le, found in zip(_les(buckets.bounds), buckets.counts, strict=True):
            sofar += found
            samples.append(Sample(f"{name}_bucket", {**own, "le": le}, float(sofar)))
        samples.append(Sample(f"{name}_count", own, float(count)))
        samples.append(Sample(f"{name}_sum", own, buckets.total))

    def families(self) -> Iterator[Family]:
        """In the table's order; a family without a sample is left out."""
        for name, samples in self._samples.items():
            if samples:
                metric = METRICS[name]
                # The client's families are named without the endings that OpenMetrics gives to their samples.
                bare = name.removesuffix("_total") if metric.kind is MetricKind.COUNTER else name.removesuffix("_info")
                family = Family(
                    bare if metric.kind in (MetricKind.COUNTER, MetricKind.INFO) else name, metric.help, metric.kind.value
                )
                family.samples = samples
                yield family


@cache
def _les(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*map(floatToGoString, bounds), "+Inf")
