"""The screens of the terminal monitor, one per file."""
