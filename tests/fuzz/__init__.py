"""Fuzzing: one target per file, with the same functions under atheris, under hypothesis, and over the kept corpus."""
