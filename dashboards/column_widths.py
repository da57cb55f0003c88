"""Least widths of the columns of tables.  Grafana's own, 150 px, would hide half of a wide table right of a laptop's screen."""

_GRAFANA_PX = 150
_LETTER_PX, _PADDING_PX = 7.6, 22  # of Grafana's font, Inter
_LABELS_PX = {
    "compute_capability": 85,
    "driver_version": 90,
    "gpu": 50,
    "instance": 100,
    "name": 100,
    "pci_bus_id": 140,
    "rule": 205,
    "severity": 75,
    "uuid": 79,
    "vbios_version": 115,
    "virtualization": 114,
}


def text_px(*texts: str) -> int:
    """Return the width of the longest text, at most Grafana's least width."""
    return min(_GRAFANA_PX, round(_PADDING_PX + _LETTER_PX * max(map(len, texts))))


def label_px(label: str) -> int:
    """Return the width of a column with this label's values."""
    return _LABELS_PX.get(label, _GRAFANA_PX)
