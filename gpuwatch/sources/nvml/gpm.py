"""The GPU performance monitor (Hopper and later): activity as a mean over the time between two samples."""

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

from gpuwatch import clock
from gpuwatch.sources.nvml.binding import SUCCESS, Api, Handle, asked, treat


class Gpm:
    """The monitor of one GPU or MIG instance, with the previous sample and reused memory."""

    def __init__(
        self,
        api: Api,
        uuid: str,
        handle: Handle,
        instance_id: int | None = None,
        *,
        shortest_ns: int = 100_000_000,  # below, an H200 answers SUCCESS with 0.0 or NaN (docs/HARDWARE.md)
        now_ns: Callable[[], int] = clock.now_ns,
        patience_s: float = 0.5,  # longer than the slowest call
    ) -> None:
        self._api = api
        self._uuid = uuid
        self._handle = handle  # the board's
        self._instance_id = instance_id
        self._shortest_ns = shortest_ns
        self._now_ns = now_ns
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._samples: list[Any] = []  # previous, spare
        self._previous_ns: int | None = None
        self._metrics: Any = None

    def supported(self) -> bool:
        answer = asked(self._api, "nvmlGpmQueryDeviceSupport", self._handle, uuid=self._uuid)
        return bool(answer and answer.isSupportedDevice)

    def ask(self, wanted: Sequence[tuple[str, int]], values: dict[str, Any]) -> None:
        """Call ``means``, and store each mean in ``values`` as a ratio under the signal's name."""
        _, means = self.means([metric for _, metric in wanted])
        for name, metric in wanted:
            if metric in means:
                values[name] = means[metric] / 100

    def means(self, metrics: Sequence[int]) -> tuple[int, dict[int, float]]:
        """Return the nanoseconds since the previous sample, and the known means over that time in NVML's unit.

        Return 0 and no means at the first call, too soon after the previous sample, or if the driver does not answer.
        Raises DeviceLostError, SourceGoneError: when the GPU or the driver is gone.
        """
        with self._lock:
            try:
                return self._means(metrics)
            except self._api.NVMLError as error:
                treat(error, self._uuid)
                return 0, {}

    def _means(self, metrics: Sequence[int]) -> tuple[int, dict[int, float]]:
        while len(self._samples) < 2:
            self._samples.append(self._api.nvmlGpmSampleAlloc())
        if self._metrics is None:
            self._metrics = self._api.c_nvmlGpmMetricsGet_t()  # 19 KB, so allocated once
        now_ns = self._now_ns()
        if self._previous_ns is not None and now_ns - self._previous_ns < self._shortest_ns:
            return 0, {}
        previous, spare = self._samples
        if self._instance_id is None:
            self._api.nvmlGpmSampleGet(self._handle, spare)
        else:
            self._api.nvmlGpmMigSampleGet(self._handle, self._instance_id, spare)
        self._samples = [spare, previous]
        before_ns, self._previous_ns = self._previous_ns, now_ns
        if before_ns is None:
            return 0, {}
        request = self._metrics
        request.version = self._api.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(metrics)
        request.sample1, request.sample2 = previous, spare
        answers = request.metrics
        for index, metric in enumerate(metrics):
            answers[index].metricId = metric
        self._api.nvmlGpmMetricsGet(request)
        found = zip(metrics, answers, strict=False)
        return now_ns - before_ns, {
            metric: answer.value for metric, answer in found if answer.nvmlReturn == SUCCESS and math.isfinite(answer.value)
        }

    def close(self) -> None:
        """Free the samples, unless a thread that hangs in the driver still uses them."""
        if not self._lock.acquire(timeout=self._patience_s):
            return
        samples, self._samples = self._samples, []
        self._previous_ns = None
        self._lock.release()
        for sample in samples:
            asked(self._api, "nvmlGpmSampleFree", sample, uuid=self._uuid)
