"""The item log and the match log, as immutable files whose manifests are in the catalog.

In: accepted items, and matches. Out: the same, by sequence or by time. No Spark here.
"""
