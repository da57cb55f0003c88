"""The meaning of each clock event reason for a measurement: the same words in `explain`, `top` and reports."""

from collections.abc import Mapping
from dataclasses import dataclass

from annotate.evidence import Reason


@dataclass(frozen=True, slots=True)
class Explained:
    """One reason: its name in nvidia-smi, the name in plain words, the meaning, and the rules that judge its bit or counter."""

    name: str
    words: str
    meaning: str
    rules: tuple[str, ...]


REASONS: Mapping[Reason, Explained] = {
    Reason.GPU_IDLE: Explained(
        "gpu_idle",
        "idle",
        "Nothing ran, so the driver lowered the clocks. Inside a window this bit marks a gap or a wait for the host. "
        "Rules about the clock leave out readings with this bit.",
        (),
    ),
    Reason.APPLICATIONS_CLOCKS: Explained(
        "applications_clocks_setting",
        "application clocks",
        "Application clocks are set and limit the clocks. Newer drivers do not raise this bit for locked clocks, so its "
        "absence proves nothing.",
        ("clock-controller-present", "clock-low-no-reason"),
    ),
    Reason.SW_POWER_CAP: Explained(
        "sw_power_cap",
        "power cap",
        "The board reached its power limit and the driver lowered the clocks to stay under it. Normal for a heavy kernel that "
        "runs steadily; a hazard when it begins or ends inside the window, or when the number is claimed for a fixed clock. "
        "A single reading of this bit proves little: the time counter behind it gives the duration.",
        ("power-limited", "regime-change", "clock-low-no-reason"),
    ),
    Reason.HW_SLOWDOWN: Explained(
        "hw_slowdown",
        "hardware slow-down",
        "The hardware cut the clocks to half or less, because of heat or on a signal of the power supply. The bits "
        "hw_thermal_slowdown and hw_power_brake_slowdown show the cause; without either, the cause is unknown. The bit may be "
        "set for a moment during an ordinary clock change.",
        ("throttle-hw-slowdown", "clock-low-no-reason"),
    ),
    Reason.SYNC_BOOST: Explained(
        "sync_boost",
        "sync boost",
        "The GPU belongs to a sync-boost group and runs at the clock of its slowest member.",
        ("sync-boost-limited", "clock-low-no-reason"),
    ),
    Reason.SW_THERMAL: Explained(
        "sw_thermal_slowdown",
        "hot, driver",
        "The GPU or its memory is at its target temperature and the driver lowers the clocks to hold it there.",
        ("throttle-thermal", "clock-low-no-reason"),
    ),
    Reason.HW_THERMAL: Explained(
        "hw_thermal_slowdown",
        "hot, hardware",
        "The GPU passed its slow-down temperature and the hardware cut the clocks at once.",
        ("throttle-thermal", "throttle-hw-slowdown", "clock-low-no-reason"),
    ),
    Reason.HW_POWER_BRAKE: Explained(
        "hw_power_brake_slowdown",
        "power brake",
        "The power supply or the rack asserted the brake line and the hardware cut the clocks at once.",
        ("throttle-power-brake", "throttle-hw-slowdown", "clock-low-no-reason"),
    ),
    Reason.DISPLAY_CLOCK: Explained(
        "display_clock_setting",
        "display clock",
        "A display needs a certain clock. Unexpected on a board without one.",
        ("display-active",),
    ),
}


def of_bit(bit: int) -> tuple[str, str]:
    """Return a bit's plain words with its name, and the bit's meaning."""
    known = REASONS.get(Reason(bit))
    if known is None:
        return f"unknown bit {bit:#x}", "This version of gpuwatch has no name for this bit."
    return f"{known.words} ({known.name})", known.meaning


def bits(mask: int) -> list[int]:
    """Return the single bits of a mask, lowest first."""
    return [1 << place for place in range(mask.bit_length()) if mask >> place & 1]


def named(text: str) -> Reason | None:
    """Return the reasons of a word or mask (``sw_power_cap``, ``SwPowerCap``, ``0x4``, ``68``), or None for any other text."""
    word = text.strip().lower()
    try:
        mask = int(word, 0)
    except ValueError:
        word = _letters(word)
        for prefix in ("clockseventreasons", "clocksthrottlereasons", "nvmlclockseventreason", "nvmlclocksthrottlereason"):
            word = word.removeprefix(prefix)
        for reason, explained in REASONS.items():
            name = _letters(explained.name)
            if word in (name, name.removesuffix("slowdown"), name.removesuffix("setting"), _letters(reason.name or "")):
                return reason
        return None
    return Reason(mask) if mask > 0 else None


def _letters(text: str) -> str:
    return "".join(letter for letter in text if letter.isalnum())
