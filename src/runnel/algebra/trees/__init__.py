"""Tree patterns: a condition family on XML and JSON documents.

In: steps, tests of values, and marks of the nodes to bind. Out: `TreePattern`, an item pattern with its evaluation,
text, stored form and traces. Nothing else in `algebra` refers to this package.
"""
