"""One GPU, read on deadlines: which signal how often, the loop, and what a window's edge needs."""
