"""The manifests of the logs: item and match segments, plan versions, seen keys, undecided items, quarantine.

In: files that were written. Out: which of them count, and up to which sequence.
"""
