"""The format of compiled plans: array files, manifests and plan versions. Nothing here reads the catalog.

In: a logical plan (from the optimizer) and index arrays (from the matchers). Out: immutable folders of array files
that workers map into memory, and `load`, which loads a version as a `Plan` of one base and at most one delta.
"""
