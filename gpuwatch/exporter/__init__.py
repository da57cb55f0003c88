"""The metrics page: what the daemon knows, for Prometheus.  ``metrics`` is the table of names; read it first."""

from __future__ import annotations
