"""Evidence as bytes: packed, and unpacked with every type and amount checked."""
