"""The metrics page for Prometheus.  Read ``metrics``, the table of names, first.

Import ``Exporter`` from ``gpuwatch.exporter.exporter``: that module loads an HTTP server, which a daemon without a page
does not need.
"""
