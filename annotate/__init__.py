"""The judge: rules over evidence, and the verdict they give.

Pure: it reads no clock and knows nothing of gpuwatch.  Only ``python -m annotate FILE``, which prints the verdicts of a
recording, opens a file.  ``docs/JUDGE.md`` shows how to judge a recording in Python.
"""

__version__ = "0.2.0"
