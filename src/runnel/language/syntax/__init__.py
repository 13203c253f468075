"""The parts of statements, each checked where it is written: literals, conditions, graph patterns, registrations.

In: tokens of the grammar. Out: parts of statements, or an error with a span.
"""
