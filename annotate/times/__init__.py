"""Analyses of iteration times for rules: durations, outliers, modes, clock sensitivity."""
