"""Tests of security, one file per threat.  SECURITY.md names the test of every promise."""
