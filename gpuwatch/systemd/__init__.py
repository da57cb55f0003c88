"""The units of systemd: their installation, and the protocol of the service manager."""
