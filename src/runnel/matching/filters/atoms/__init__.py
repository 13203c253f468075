"""Atoms as arrays: by which keys they are found, and how their truth on an item is known.

In: the atoms of a plan part, and a batch of items. Out: keys, anchors, and truth values.
"""
