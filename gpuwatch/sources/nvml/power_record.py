"""The driver's dense power record, and the clock of the record's time stamps."""

from collections.abc import Callable
from typing import TypeAlias

from gpuwatch import clock
from gpuwatch.sources.nvml.binding import NOT_FOUND, PERMANENT, Api, Handle, treat
from gpuwatch.sources.nvml.fields import decoded
from gpuwatch.sources.nvml.process_lists import Lists

Offset: TypeAlias = Callable[[], int]

STEP_NS = 100_000_000  # a larger change of an offset counts as a step: time daemons slew by at most 83 ms per second
SLACK_NS = 50_000_000  # reading two clocks can put a stamp up to this far in the future
FARTHEST_NS = 60_000_000_000  # a clock farther from the newest sample than this did not stamp it


class DensePower:
    """The cursor into one GPU's power record: on an H200 119 samples, 20 ms apart (docs/HARDWARE.md)."""

    def __init__(
        self,
        api: Api,
        uuid: str,
        handle: Handle,
        *,
        now_ns: Callable[[], int] = clock.now_ns,
        wall_offset_ns: Offset = clock.wall_offset_ns,
        boot_offset_ns: Offset = clock.boot_offset_ns,
    ) -> None:
        self._api = api
        self._uuid = uuid
        self._lists = Lists(api, handle)
        self._now_ns = now_ns
        self._offsets = {"wall": wall_offset_ns, "boot": boot_offset_ns}
        self._cursor_us = 0
        self._offset_ns: int | None = None
        self._last_ns = 0
        self.stamped_by: str | None = None  # "wall" or "boot" after the first sample

    def gained(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return times (CLOCK_MONOTONIC ns) and watts since the last call, oldest first.

        Return empty tuples without new samples, after a step of the stamps' clock, or if that clock is unknown.

        Raises DeviceLostError, SourceGoneError: when the GPU or the driver is gone.
        """
        samples = self._samples()
        if not samples:
            return (), ()
        if self.stamped_by is None:
            self.stamped_by = self._nearest_clock(samples[-1][0])
        if self.stamped_by is None:
            return (), ()
        offset_ns = self._offsets[self.stamped_by]()
        stepped = self._offset_ns is not None and abs(offset_ns - self._offset_ns) > STEP_NS
        self._offset_ns = offset_ns
        if stepped:
            # Stamps before and after the step cannot be distinguished, so skip to now.
            self._cursor_us = (self._now_ns() + offset_ns) // 1000
            return (), ()
        latest_ns = self._now_ns() + SLACK_NS
        times: list[int] = []
        watts: list[float] = []
        for stamp_us, draw_w in samples:
            at_ns = stamp_us * 1000 - offset_ns
            # After a clock was set back, the record still holds samples from the future.
            if at_ns <= latest_ns:
                self._cursor_us = max(self._cursor_us, stamp_us)
            if self._last_ns < at_ns <= latest_ns:
                times.append(at_ns)
                watts.append(draw_w)
                self._last_ns = at_ns
        return tuple(times), tuple(watts)

    def _samples(self) -> list[tuple[int, float]]:
        try:
            kind, found = self._lists.samples(self._api.NVML_TOTAL_POWER_SAMPLES, self._cursor_us)
        except self._api.NVMLError as error:
            # The driver answers NotFound if no sample is newer than the cursor, for example on a sleeping GPU.
            if error.value not in PERMANENT and error.value != NOT_FOUND:
                treat(error, self._uuid)
            return []
        return sorted(
            (stamp_us, value / 1000) for stamp_us, raw in found if stamp_us > 0 and (value := decoded(kind, raw)) is not None
        )

    def _nearest_clock(self, stamp_us: int) -> str | None:
        """Return the clock nearest to the newest sample; None if the sample is over a minute away from both."""
        now_ns = self._now_ns()
        apart_ns = {name: abs(stamp_us * 1000 - (now_ns + offset())) for name, offset in self._offsets.items()}
        nearest = min(apart_ns, key=lambda name: apart_ns[name])
        return nearest if apart_ns[nearest] <= FARTHEST_NS else None
