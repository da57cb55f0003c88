"""The decision on interleaved quads of blocks, and the comparison of two recorded runs."""
