"""Sampling of one GPU on deadlines: the lane plan, the loop, and the readings for a window's edge."""
