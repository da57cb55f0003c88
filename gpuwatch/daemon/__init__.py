"""The process that watches: its windows, its socket, the judge's worker, its life. `daemon.py` wires it."""
