"""A mock of the driver's library in C with the same ABI, so that any program that reads NVML runs unmodified."""
