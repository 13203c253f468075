"""Joins: the items of windows with their indexes, and the pairs of items that satisfy a join's condition."""
