"""Measurements that need a real GPU (`make gpu`), and the rendering of the committed data into docs/VALIDATION.md."""
