"""The daemon process: its windows, its socket, the judge's worker and its lifetime. `daemon.py` wires the parts."""
