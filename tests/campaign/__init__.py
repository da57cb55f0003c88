"""How often the judge is right: clean windows by the thousand, and each hazard put into them at multiples of its rule's limit."""
