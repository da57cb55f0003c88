"""The units of systemd: what is installed where, and what the service manager is told."""
