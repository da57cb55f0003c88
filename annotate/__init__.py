"""The judge: rules that turn evidence into a verdict.

The package is pure: it reads no clock and does not import gpuwatch.  Only ``python -m annotate FILE``, which prints the
verdicts of a recording, opens a file.  ``docs/JUDGE.md`` shows how to judge a recording in Python.
"""

__version__ = "0.2.0"
