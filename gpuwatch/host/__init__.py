"""Facts from the operating system: processes, CPU pressure, profilers, suspensions."""
