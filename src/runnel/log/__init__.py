"""The logs: item log, archive, match log and plan store, as immutable files whose manifests are in the catalog.

In: accepted items, and matches. Out: the same, by sequence or by time, again and again. No Spark here.
"""
