"""The generator of disturbed windows whose true deviation is known; it knows nothing of the judge's rules."""
