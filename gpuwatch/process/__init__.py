"""Facts that only the measured process knows: torch's state, versions, replaced timers, its inputs."""
