"""Tests of the dashboards and rules against a real Prometheus that scrapes real daemons."""
