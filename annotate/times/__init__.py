"""The times of single iterations."""
