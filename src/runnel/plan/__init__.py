"""The plan's format: the predicate table in arrays, its manifest, its versions. No catalog here.

In: a logical plan (from the optimiser) and index arrays (from the matchers). Out: immutable folders of array files
that workers map into memory, and `load`, which gives a version back as a Plan of a base and at most one delta.
"""
