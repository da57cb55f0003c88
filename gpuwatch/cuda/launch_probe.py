"""A probe of every seventh iteration: the host's launch time, and whether the GPU waited for the launch."""

from array import array
from collections.abc import Callable
from statistics import median

from gpuwatch.wire.messages import FactValue

# Each probe costs the host a query of an event, so probes are rare.  A prime interval avoids the rhythm of a loop.
_EVERY_COUNT = 7
_FEWEST_COUNT = 5
_USUAL_RATIO = 0.5


class LaunchProbe:
    """The host's times of probed iterations.

    If the first event of an iteration is done when the host has launched all of it, the GPU may have waited for the launch.
    Probing creates no object that Python's collector tracks.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._count = 0
        self._probed, self._begun_ns = -1, 0
        self._took_ns, self._starved = array("q"), array("b")

    def begin(self, number: int) -> None:
        """Start a probe if one is due; ``number`` is that of the iteration's first event."""
        self._count += 1
        if self._count % _EVERY_COUNT == 0:
            self._probed = number
            self._begun_ns = self._now_ns()

    def end(self, number: int) -> bool:
        """Record the launch time of a probed iteration; return False for any other iteration."""
        if number != self._probed:
            return False
        self._took_ns.append(self._now_ns() - self._begun_ns)
        self._probed = -1
        return True

    def note(self, *, is_reached: bool) -> None:
        """Note whether the GPU has already reached the probed iteration."""
        self._starved.append(is_reached)

    def declared(self) -> dict[str, FactValue]:
        """Return the launch facts to declare; empty for fewer than five probes.

        A full queue of launches delays a host that is ahead, so then the least time counts as the time of a launch.
        """
        if len(self._starved) < _FEWEST_COUNT:
            return {}
        starved_ratio = sum(self._starved) / len(self._starved)
        took_ns = median(self._took_ns) if starved_ratio > _USUAL_RATIO else min(self._took_ns)
        return {"issue_s": took_ns / 1e9, "starved_ratio": starved_ratio}
