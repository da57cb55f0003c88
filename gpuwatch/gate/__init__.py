"""The gate in CI: each window against its baseline, and what CI systems read of the answer."""
