"""The campaign on the judge's error rates: clean windows, each also with every hazard at multiples of its rule's limit."""
