"""The gate in CI: each window against its baseline, and the output for CI systems."""
