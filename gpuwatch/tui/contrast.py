"""Legible colours in every theme: text contrasts with its background by at least 4.5 to 1, as WCAG 2 requires."""

from collections.abc import Mapping

from textual.color import Color, ColorParseError

LEAST_RATIO = 4.5
WRITTEN_ON: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("foreground", "foreground-muted", "text-success", "text-secondary", "text-warning", "text-error"),
        ("background", "surface", "panel"),
    ),
    **dict.fromkeys(("footer-key-foreground", "footer-description-foreground"), ("footer-background",)),
}
_STEPS_COUNT = 50


def make_legible(variables: Mapping[str, str]) -> dict[str, str]:
    """Return a theme's variables with text lightened or darkened as needed; terminal colours stay unchanged."""
    found = dict(variables)
    for name, grounds in WRITTEN_ON.items():
        text, on = _color(found.get(name)), [color for ground in grounds if (color := _color(found.get(ground))) is not None]
        if text is not None and len(on) == len(grounds):
            found[name] = _readable(text, on).hex
    return found


def contrast_ratio(one: Color, other: Color) -> float:
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _readable(text: Color, on: list[Color]) -> Color:
    text = on[0].blend(text, text.a, alpha=1.0)  # muted text is partly transparent
    dark = sum(map(_luminance, on)) / len(on) < 0.18
    end = Color(255, 255, 255) if dark else Color(0, 0, 0)
    for step in range(_STEPS_COUNT):
        shown = text.blend(end, step / _STEPS_COUNT)
        if all(contrast_ratio(shown, ground) >= LEAST_RATIO for ground in on):
            return shown
    return end


def _luminance(color: Color) -> float:
    red, green, blue = (value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in color.normalized)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _color(said: str | None) -> Color | None:
    try:
        color = Color.parse(said) if said is not None else None
    except ColorParseError:
        return None
    return color if color is not None and color.ansi is None and (color.a == 1.0 or said != "transparent") else None
