"""The generator of disturbed windows whose true deviation is known; the generator uses no rules of the judge."""
