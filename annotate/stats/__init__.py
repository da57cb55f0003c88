"""Statistics of autocorrelated series with outliers."""
