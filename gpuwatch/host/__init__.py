"""Facts from the operating system: processes, CPU pressure, pauses, GPU sharing, profilers, suspensions, Xids, PCI order."""
