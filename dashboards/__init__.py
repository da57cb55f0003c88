"""Grafana dashboards as code, and Prometheus rules: what of gpuwatch's metrics people look at, and when they are called."""
