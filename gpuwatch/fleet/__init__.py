"""The export for many machines: windows and verdicts as Parquet.  The only package that imports pyarrow and duckdb.

``columns`` is the frozen contract, and ``rows`` and ``window_physics`` make rows of a stored run.  ``parquet`` writes parts
of a partition whole or not at all.  ``export`` adds missing windows, and ``fleet_questions`` queries the exported ones.
"""
