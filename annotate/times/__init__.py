"""Questions that rules ask of the times of iterations: durations, outliers, modes, clock sensitivity."""
