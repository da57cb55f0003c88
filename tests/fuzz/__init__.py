"""Fuzzing: one target per file, which runs under atheris, under hypothesis, and on the kept corpus."""
