"""Records for screens: the present, one past moment, and a boot's history."""
