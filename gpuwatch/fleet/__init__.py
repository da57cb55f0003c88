"""The export for many machines: windows and verdicts as Parquet.  The only package that imports pyarrow and duckdb.

``columns`` is the frozen contract.  ``rows`` and ``window_physics`` convert a stored run to rows.  ``parquet`` writes each
part of a partition completely or not at all.  ``export`` adds missing windows.  ``fleet_questions`` queries exported windows.
"""
