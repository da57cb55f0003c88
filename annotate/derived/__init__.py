"""Quantities that several rules derive from the evidence, one per file."""
