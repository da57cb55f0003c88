"""Robust statistics, intervals that respect autocorrelation, and the robust line."""
