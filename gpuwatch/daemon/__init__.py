"""The daemon process: its GPUs, windows, socket, judge's worker and lifetime.  ``daemon.py`` wires the parts."""
