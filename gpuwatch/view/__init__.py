"""The records that screens show: of now, of one past moment, of a boot's history."""
