"""The monitor's widgets, and the lines they draw."""
