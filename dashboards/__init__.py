"""Grafana dashboards as code, and Prometheus rules for gpuwatch's metrics."""
