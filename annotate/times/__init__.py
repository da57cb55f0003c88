"""Analyses of iteration times."""
