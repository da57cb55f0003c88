"""A mock of the driver's library, written in C to its ABI, so that any program that reads NVML runs on it unmodified."""
