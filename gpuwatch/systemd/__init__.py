"""The systemd units: their installation, and the protocol of the service manager."""
