"""Quantities that rules and proofs derive from the evidence."""
