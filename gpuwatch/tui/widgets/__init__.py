"""The widgets of the terminal monitor, one a file."""
