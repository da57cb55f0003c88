"""The user's configuration: settings, where each came from, default paths, and amounts with units."""
