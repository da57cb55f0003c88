"""Tests of access, one file per threat, each against real daemons.  SECURITY.md names the test behind every promise."""
