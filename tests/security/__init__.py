"""Who gets at what: one file a threat, each against real daemons.  SECURITY.md names the test behind every promise."""
