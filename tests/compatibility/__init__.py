"""Tests with files and conversations of earlier versions."""
