"""Faces for other people's harnesses: each opens gpuwatch's windows around what the harness times, and hands its times over."""
