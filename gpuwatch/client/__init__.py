"""The side of the measured process: `window()`, its connection to the daemon, and the facts it declares."""
