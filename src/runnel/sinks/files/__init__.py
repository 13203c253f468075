"""File sinks: RSS, Atom, JSON Feed and JSON lines.

In: a delivery. Out: a file that is complete at all times.
"""
