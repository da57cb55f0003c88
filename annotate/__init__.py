"""The judge: rules that turn evidence into a verdict.

The package is pure: it reads no clock and does not import gpuwatch.  Only ``python -m annotate FILE``, which prints the
verdicts of a recording, opens a file.  ``docs/JUDGE.md`` shows how to judge a recording in Python.
"""

__version__ = "0.2.0"

__path__.append(f"{__path__[0]}/former_names")  # so that `import annotate.policy` works until 0.3
