"""The screens of the terminal monitor, one a file."""
