"""The decision on interleaved pairs, and the comparison of two recorded runs."""
