"""One metrics page: callers add samples by name, and only names and labels of the table are accepted."""

from collections.abc import Iterator
from functools import cache, lru_cache

from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from gpuwatch.exporter.counters import Buckets
from gpuwatch.exporter.metrics import METRICS, MetricKind

_SERIES_COUNT = 1 << 14  # cached series names; a page of eight GPUs has far fewer
_PLAIN_BELOW = 1e6  # Go writes numbers from here on with an exponent


class MetricsPage:
    """The families of one scrape."""

    def __init__(self) -> None:
        # By name: suffix of the sample's name, values of the labels, value.
        self._samples: dict[str, list[tuple[str, tuple[str, ...], float]]] = {name: [] for name in METRICS}

    def put(self, name: str, value: float | None, *labels: str) -> None:
        """Add a sample, unless the value is ``None`` or NaN, which means not observed."""
        if value is None or value != value:
            return
        _check(name, labels)
        self._samples[name].append(("", labels, float(value)))

    def histogram(self, name: str, buckets: Buckets, *labels: str, from_zero: bool = False) -> None:
        """Add a histogram's samples; leave out a histogram without values, unless ``from_zero``."""
        count = sum(buckets.counts)
        if not count and not from_zero:
            return
        _check(name, labels)
        samples, sofar = self._samples[name], 0
        for le, found in zip(_les(buckets.bounds), buckets.counts, strict=True):
            sofar += found
            samples.append(("_bucket", (*labels, le), float(sofar)))
        samples.append(("_count", labels, float(count)))
        samples.append(("_sum", labels, buckets.total))

    def families(self) -> Iterator[Family]:
        """Yield families in the table's order, without families that have no sample."""
        for name, samples in self._samples.items():
            if samples:
                family = _family(name)
                family.samples = [
                    Sample(f"{name}{ending}", dict(zip(_label_names(name, ending), labels, strict=True)), value)
                    for ending, labels, value in samples
                ]
                yield family

    def text(self, *, is_openmetrics: bool) -> str:
        """Return the text that the client library makes of ``families``, for less CPU time."""
        parts: list[str] = []
        for name, samples in self._samples.items():
            if samples:
                parts.append(_head(name, is_openmetrics))
                parts += [f"{_series(name, ending, labels)} {_number(value)}\n" for ending, labels, value in samples]
        return "".join([*parts, "# EOF\n"] if is_openmetrics else parts)


def _check(name: str, labels: tuple[str, ...]) -> None:
    if len(labels) != len(METRICS[name].labels):
        raise ValueError(f"{name}: expected labels {METRICS[name].labels}, found {labels}")


def _family(name: str) -> Family:
    metric = METRICS[name]
    # The client library's family names lack the suffixes ``_total`` and ``_info`` of the samples.
    bare = name.removesuffix("_total") if metric.kind is MetricKind.COUNTER else name.removesuffix("_info")
    return Family(bare if metric.kind in (MetricKind.COUNTER, MetricKind.INFO) else name, metric.help, metric.kind.value)


def _label_names(name: str, ending: str) -> tuple[str, ...]:
    return (*METRICS[name].labels, "le") if ending == "_bucket" else METRICS[name].labels


@cache
def _head(name: str, is_openmetrics: bool) -> str:  # noqa: FBT001 - a key of the cache
    """Return the two lines before a family's samples; in the text format, both lines have the samples' name."""
    family, text = _family(name), METRICS[name].help
    if is_openmetrics:
        return f"# HELP {family.name} {_escaped(text)}\n# TYPE {family.name} {family.type}\n"
    kind = "gauge" if family.type == "info" else family.type
    return f"# HELP {name} {_escaped_line(text)}\n# TYPE {name} {kind}\n"


@lru_cache(maxsize=_SERIES_COUNT)
def _series(name: str, ending: str, labels: tuple[str, ...]) -> str:
    named = sorted(zip(_label_names(name, ending), labels, strict=True))
    inside = ",".join(f'{label}="{_escaped(value)}"' for label, value in named)
    return f"{name}{ending}{{{inside}}}" if inside else f"{name}{ending}"


def _escaped(text: str) -> str:
    return _escaped_line(text).replace('"', r"\"")


def _escaped_line(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    return repr(value) if -_PLAIN_BELOW < value < _PLAIN_BELOW else str(floatToGoString(value))  # type: ignore[no-untyped-call]


@cache
def _les(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*map(floatToGoString, bounds), "+Inf")
