"""Graph patterns: a condition family on RDF graphs.

In: edges between terms and variables, and a filter on the variables. Out: `Graph`, an item pattern with its
evaluation, text, stored form and traces. Nothing else in `algebra` refers to this package.
"""
