"""Amounts as text: three or four digits with a fitting unit, and ordinals."""

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def duration_text(seconds: float, digits_count: int = 4) -> str:
    """Return a duration as text, by default with four digits, because repeatability is often below a thousandth."""
    return _text(seconds, _TIMES, digits_count)


def span_text(begin_s: float, end_s: float) -> str:
    """Return both ends of a span in the unit that fits the end, such as "0 to 20 ms"."""
    if end_s < 0.9995:
        return f"{1e3 * begin_s:.3g} to {1e3 * end_s:.3g} ms"
    return f"{begin_s:.2f} to {end_s:.2f} s"


def amount_text(amount: float, unit: str) -> str:
    """Return an amount or a rate as text, with three digits and a prefix of the unit."""
    return _text(amount, _PREFIXES, 3) + unit


def ordinal(number: int) -> str:
    """Return a number as 1st, 2nd, 3rd, 4th."""
    endings = {} if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{endings.get(number % 10, 'th')}"


def _text(amount: float, units: tuple[tuple[float, str], ...], digits_count: int) -> str:
    least = 1.0 - 0.5 * 10.0**-digits_count  # an amount that rounds to 1 takes this unit
    scale, unit = next((each for each in units if abs(amount) >= least * each[0]), units[-1])
    number = amount / scale
    # From this size on the format g would give an exponent.
    return f"{number:.0f} {unit}" if abs(number) >= 10.0**digits_count - 0.5 else f"{number:.{digits_count}g} {unit}"
