"""The user's configuration: settings with their origins, default paths, and amounts with units."""
