"""A mock of the driver's library in C with the same ABI, so that programs that read NVML run unmodified."""
