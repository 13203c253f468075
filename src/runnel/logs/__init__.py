"""The item log and the match log, as immutable files whose manifests are in the catalog.

In: accepted items, and matches. Out: items and matches by sequence or by time. This package does not import Spark.
"""
