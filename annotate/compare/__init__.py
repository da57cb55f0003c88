"""The judge of comparisons."""
