"""The metrics page for Prometheus.  ``metrics`` is the table of names; read it first.

Import ``Exporter`` and ``Daemon`` from ``gpuwatch.exporter.exporter``: they load an HTTP server, which a daemon without
a page does not need.
"""
