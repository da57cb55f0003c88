"""The measured process's end: `window()`, its connection to the daemon, and what it declares."""
