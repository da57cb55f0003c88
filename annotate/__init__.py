"""The judge: rules over evidence, and the verdict they give.

Pure: it reads no clock, opens no file and knows nothing of gpuwatch.
"""

from __future__ import annotations

__version__ = "0.1.0"
