"""The user's configuration: settings with their origins, default paths, amounts with units, and shipped files."""
