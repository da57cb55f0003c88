"""The monitor's screens, one per file."""
