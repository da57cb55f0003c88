"""Statistics of short, correlated series."""
