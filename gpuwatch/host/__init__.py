"""The operating system as the daemon sees it: processes, CPU pressure, profilers, suspensions."""
