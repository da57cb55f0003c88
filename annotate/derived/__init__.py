"""Questions that several rules ask of the same evidence."""
