"""Atoms as arrays: the keys that find them, and how their truth on an item is decided.

In: the atoms of a plan part, and a batch of items. Out: keys, anchors, and truth values.
"""
