"""Hostile input: one target a file, the same functions under atheris, under hypothesis, and over the kept corpus."""
