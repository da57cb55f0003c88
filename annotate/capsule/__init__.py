"""Packing of evidence into bytes, and unpacking with checks of every type and amount."""
