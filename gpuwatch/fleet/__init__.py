"""Past one machine: windows and verdicts as Parquet, one row a window and GPU.  The only package that imports pyarrow.

``contract`` is the frozen list of columns, ``rows`` makes them of a stored run, ``parquet`` writes parts of a partition
whole or not at all, ``export`` adds what is not there yet.
"""
