"""Facts that only the measured process can read: torch's state, versions, replaced timers, inputs, pauses, tags."""
