"""Measurements that need a real GPU, and the pages rendered from their committed data."""
