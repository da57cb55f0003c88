"""The generator of disturbed windows with a known true deviation, independent of the judge's rules."""
