"""Measurements that need a real GPU: `make gpu` runs them, and their committed data is rendered into docs/VALIDATION.md."""
