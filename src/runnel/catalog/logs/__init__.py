"""The manifests of the logs: item and match segments, plan versions, seen keys, undecided items, quarantine.

In: files that were written. Out: the files that are part of the logs, and their sequences.
"""
