"""Evidence as bytes: packing, unpacking, and the limits of both."""
