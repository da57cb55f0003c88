"""One simulated board: the load determines clock, power, heat and counters.

The figures come from the H200 recordings in ``tests/traces/README.md``; ``tests/gpuwatch/sources/test_fit.py`` compares the
results with recordings.  No code here depends on a scene's name.
"""

import math
import random
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from annotate.evidence import Reason
from gpuwatch.sources.simulated.script import Script, ScriptPiece

STEP_NS = 5_000_000
BIN_NS = 20_000_000  # bin of the driver's dense power record; the controllers act once per bin
RECORD_COUNT = 119  # bins in the dense power record
_AVERAGE_COUNT = 50  # bins in the trailing second of the average power, which the power controller watches
_HISTORY_COUNT = 12_000  # steps kept for kernel times: at most a minute

# Static power without and with a context, and the growth of leakage power above 40 °C.
_BARE_W, _CONTEXT_W, _LEAK_W_PER_C = 82.0, 123.0, 0.8
# Two thermal poles: die to spreader, spreader to air.
_AIR_C = 29.6
_FAST_C_PER_W, _FAST_S, _SLOW_C_PER_W, _SLOW_S = 0.033, 0.12, 0.008, 6.0
_WHOLE_STEP_SHARE = 1.0 - math.exp(-(STEP_NS / 1e9) / _FAST_S)

# The cap engages after this much energy above the limit: 56 to 75 ms after the start of a product (docs/HARDWARE.md).
_ONSET_J = 13.0
# The target power is then 3 % above the limit, minus the gain times the last second's mean above 98 % of the limit.  A dip
# leaves this mean abruptly after one second, which causes the limit cycle.
_BURST_RATIO, _FLOOR_RATIO, _SET_RATIO, _GAIN = 1.03, 0.78, 0.980, 7.0
_RELEASE_RATIO, _RELEASE_COUNT = 0.8, 8  # released when the mean of 160 ms is below 80 % of both limit and target
_LOAD_MEMORY = 0.7  # the kernels' power varies as AR(1), one step per bin

# Plain integers, because operations on flags are slow.
_CAPPED, _SHUT = int(Reason.SW_POWER_CAP), int(Reason.HW_THERMAL | Reason.HW_SLOWDOWN)
_HOT, _IDLE = int(Reason.SW_THERMAL), int(Reason.GPU_IDLE)

# Software lowers the clock by a fifth for heat; hardware halves the clock at the slow-down temperature.
SLOWDOWN_C = 87
_HOT_C, _COOL_C, _HOT_SHARE, _SHUT_SHARE = 85.0, 82.0, 0.8, 0.5


@dataclass(slots=True)
class Totals:
    """Totals since the scene's epoch; they never decrease."""

    energy_j: float = 0.0
    power_cap_ns: int = 0
    sync_boost_ns: int = 0
    sw_thermal_ns: int = 0
    hw_thermal_ns: int = 0
    power_brake_ns: int = 0
    utilized_ns: float = 0.0  # this and the fields below: ratios integrated over time
    mem_utilized_ns: float = 0.0
    sm_active_ns: float = 0.0
    tensor_active_ns: float = 0.0
    dram_active_ns: float = 0.0
    occupied_ns: float = 0.0
    own_ns: float = 0.0


class Moment(NamedTuple):  # each step makes one, and a tuple is faster than a frozen record
    """One past step: end, length, true clock, and stretch."""

    end_ns: int
    length_ns: int
    clock_ratio: float
    stretch: ScriptPiece


class Physics:
    """The state of one board, integrated from the epoch in steps that do not depend on the sequence of calls."""

    stretch: ScriptPiece
    _stretch_end_ns: int

    def __init__(self, script: Script, seed: str) -> None:
        self.script = script
        self.board = script.scene.board
        self._low_ratio = self.board.idle_clock_mhz / self.board.sm_clock_max_mhz
        self.now_ns = 0  # since the epoch
        self._round_ns = round(script.scene.length_s * 1e9)
        self._enter(0)
        self.totals = Totals()
        self.history: deque[Moment] = deque(maxlen=_HISTORY_COUNT)
        self.record: deque[tuple[int, float]] = deque(maxlen=RECORD_COUNT)  # (end of bin, watts)
        self.by_neighbour_ns: dict[int, float] = {}
        self.clock_ratio = self._idle_ratio()
        self.capped = False
        self.hot = self.shut = False
        static_w = _CONTEXT_W if self.stretch.context else _BARE_W
        self.average_w = static_w
        self._random = random.Random(seed)  # noqa: S311 - noise, not a secret
        self._bins: deque[float] = deque([static_w] * _AVERAGE_COUNT, maxlen=_AVERAGE_COUNT)
        self._capped_w: deque[float] = deque(maxlen=_RELEASE_COUNT)  # the last bins under the cap
        self._bin_j = 0.0
        self._fast_c = _FAST_C_PER_W * static_w
        self._slow_c = _SLOW_C_PER_W * static_w
        self._excess_j = 0.0
        self._cap_ratio = 1.0
        self._target_w = 0.0
        self._load_factor = 1.0

    @property
    def temperature_c(self) -> float:
        return _AIR_C + self.stretch.air_c + self._fast_c + self._slow_c

    @property
    def reasons_mask(self) -> int:
        mask = self.stretch.reasons_mask
        if self.capped:
            mask |= _CAPPED
        if self.shut:
            mask |= _SHUT
        elif self.hot:
            mask |= _HOT
        if not self.stretch.context:
            mask |= _IDLE
        return mask

    @property
    def programmed_mhz(self) -> int:
        """SM clock that the driver reports, in steps of 15 MHz: higher than the true clock under a cap or tensor work."""
        top_mhz = self.board.sm_clock_max_mhz
        sums, share = self.stretch.sums, self._clock_share()
        if self.stretch.context and (not sums.busy_share or not self.capped) and self.board.ramp_s < 0.1:
            shown = share
        elif self.capped and sums.busy_share:
            shown = min(share, self.clock_ratio * sums.shown_ratio)
        else:
            shown = self.clock_ratio / (sums.ceiling_ratio if sums.busy_share else 1.0)
        return min(top_mhz, 15 * round(top_mhz * shown / 15))

    def next_ns(self) -> int:
        """Return the end of the next step: the next 5 ms mark, or the end of the stretch if earlier."""
        mark_ns = self.now_ns - self.now_ns % STEP_NS + STEP_NS
        return mark_ns if mark_ns < self._stretch_end_ns else self._stretch_end_ns

    def step(self) -> None:
        stretch, sums = self.stretch, self.stretch.sums
        end_ns = self.next_ns()
        length_ns = end_ns - self.now_ns
        length_s = length_ns / 1e9
        self._move_clock(length_s)
        static_w = self._static_w()
        power_w = static_w + sums.dynamic_w * self._load_factor * self.clock_ratio**2
        energy_j = power_w * length_s
        self._bin_j += energy_j
        excess_j = self._excess_j + (power_w - stretch.power_limit_w) * length_s
        self._excess_j = excess_j = excess_j if excess_j > 0.0 else 0.0
        if excess_j > _ONSET_J and not self.capped:
            self.capped = True
            self._capped_w.clear()
            self._target_w = _BURST_RATIO * stretch.power_limit_w
            self._aim_power(static_w)
        heat_w = power_w * sums.heat_ratio
        share = _WHOLE_STEP_SHARE if length_ns == STEP_NS else 1.0 - math.exp(-length_s / _FAST_S)
        self._fast_c += (_FAST_C_PER_W * heat_w - self._fast_c) * share
        self._slow_c += (_SLOW_C_PER_W * heat_w - self._slow_c) * length_s / _SLOW_S
        self._count(stretch, length_ns, energy_j)
        self.history.append(Moment(end_ns, length_ns, self.clock_ratio, stretch))
        self.now_ns = end_ns
        if end_ns % BIN_NS == 0:
            self._control()
        if end_ns >= self._stretch_end_ns:
            self._enter(end_ns)

    def _enter(self, now_ns: int) -> None:
        round_begin_ns = now_ns - now_ns % self._round_ns
        # Add a microsecond, so that rounding cannot find the previous stretch.
        self.stretch = self.script.at((now_ns - round_begin_ns) / 1e9 + 1e-6)
        self._stretch_end_ns = max(now_ns + 1, round_begin_ns + round(self.stretch.end_s * 1e9))

    def _idle_ratio(self) -> float:
        return 1.0 if self.stretch.context else self._low_ratio

    def _clock_share(self) -> float:
        """Return the share of the clock that faults and heat allow."""
        share = self.stretch.clock_share
        sag = self.stretch.sag
        if sag is not None:
            at_s = (self.now_ns % self._round_ns) / 1e9
            share *= 1.0 + (sag.value - 1.0) * (at_s - sag.begin_s) / (sag.end_s - sag.begin_s)
        return share * (_SHUT_SHARE if self.shut else _HOT_SHARE if self.hot else 1.0)

    def _static_w(self) -> float:
        stretch = self.stretch
        above_c = _AIR_C + stretch.air_c + self._fast_c + self._slow_c - 40.0
        return (_CONTEXT_W if stretch.context else _BARE_W) + _LEAK_W_PER_C * (above_c if above_c > 0.0 else 0.0)

    def _aim_power(self, static_w: float) -> None:
        """Set the clock at which the last bin's load draws the target power."""
        dynamic_w = self.stretch.sums.dynamic_w * self._load_factor
        if dynamic_w:
            self._cap_ratio = math.sqrt(max(self._target_w - static_w, 10.0) / dynamic_w)

    def _move_clock(self, length_s: float) -> None:
        sums = self.stretch.sums
        if not sums.busy_share:
            aim = self._idle_ratio() * self._clock_share()
        else:
            aim = sums.ceiling_ratio * self._clock_share()
            if self.capped:
                aim = min(aim, self._cap_ratio)
        # Clocks change at once, except that a board with a lower idle clock raises an uncapped clock gradually.
        if aim > self.clock_ratio and self._low_ratio < 0.999 and not self.capped:
            self.clock_ratio += (aim - self.clock_ratio) * (1.0 - math.exp(-length_s / self.board.ramp_s))
        else:
            self.clock_ratio = aim

    def _count(self, stretch: ScriptPiece, length_ns: int, energy_j: float) -> None:
        totals, sums = self.totals, stretch.sums
        totals.energy_j += energy_j
        if self.capped:
            totals.power_cap_ns += length_ns
        if self.hot:
            totals.sw_thermal_ns += length_ns
        if self.shut:
            totals.hw_thermal_ns += length_ns
        if stretch.reasons_mask:
            if stretch.reasons_mask & Reason.SYNC_BOOST:
                totals.sync_boost_ns += length_ns
            if stretch.reasons_mask & Reason.HW_POWER_BRAKE:
                totals.power_brake_ns += length_ns
        if sums.busy_share:
            totals.utilized_ns += sums.utilization_ratio * length_ns
            totals.mem_utilized_ns += sums.mem_utilization_ratio * length_ns
            totals.sm_active_ns += sums.sm_activity_ratio * length_ns
            totals.tensor_active_ns += sums.tensor_activity_ratio * length_ns
            totals.dram_active_ns += sums.dram_activity_ratio * length_ns
            totals.occupied_ns += sums.occupancy_ratio * length_ns
            totals.own_ns += stretch.own_share * length_ns
            for neighbour, share in stretch.others:
                self.by_neighbour_ns[neighbour.pid] = self.by_neighbour_ns.get(neighbour.pid, 0.0) + share * length_ns

    def _control(self) -> None:
        """Update the power record, the power and heat controllers, and the load's noise; called once per bin."""
        power_w = self._bin_j / (BIN_NS / 1e9)
        self._bin_j = 0.0
        self.record.append((self.now_ns, power_w))
        self.average_w += (power_w - self._bins[0]) / _AVERAGE_COUNT
        self._bins.append(power_w)
        limit_w = self.stretch.power_limit_w
        if self.capped:
            owed_w = max(0.0, self.average_w - _SET_RATIO * limit_w)
            self._target_w = max(_FLOOR_RATIO * limit_w, _BURST_RATIO * limit_w - _GAIN * owed_w)
            self._capped_w.append(power_w)
            mean_w = sum(self._capped_w) / len(self._capped_w)
            if len(self._capped_w) == _RELEASE_COUNT and mean_w < _RELEASE_RATIO * min(limit_w, self._target_w):
                self.capped = False
                self._excess_j = 0.0
            self._aim_power(self._static_w())
        self._load_factor = (
            1.0 + _LOAD_MEMORY * (self._load_factor - 1.0) + self._random.gauss(0.0, self.stretch.sums.unrest_ratio)
        )
        temperature_c = self.temperature_c
        self.hot = temperature_c >= (_COOL_C if self.hot else _HOT_C)
        self.shut = temperature_c >= SLOWDOWN_C
