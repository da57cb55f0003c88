"""Past one machine: windows and verdicts as Parquet, one row a window and GPU.  The only package that imports pyarrow and duckdb.

``columns`` is the frozen contract, ``rows`` and ``window_physics`` make rows of a stored run, ``parquet`` writes parts of a
partition whole or not at all, ``export`` adds what is not there yet, ``fleet_questions`` asks what many machines exported.
"""
