"""The metrics page: what the daemon knows, for Prometheus.  ``metrics`` is the table of names; read it first.

``Exporter`` and ``Daemon`` are taken from ``gpuwatch.exporter.exporter``: importing them loads an HTTP server, which a daemon
without a page does without.
"""
