"""Former place of `annotate.times.clock_sensitivity`, kept for one release."""

from annotate.times.clock_sensitivity import NoFit as Refused
from annotate.times.clock_sensitivity import Sensitivity, sensitivity

__all__ = ["Refused", "Sensitivity", "sensitivity"]
