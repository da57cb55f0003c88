"""Campaign on the judge's error rates: thousands of clean windows, each also with every hazard at multiples of its rule's limit."""
