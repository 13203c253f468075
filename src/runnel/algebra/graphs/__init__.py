"""Graph patterns: a condition family on RDF graphs.

In: edges between terms and variables, and a filter over these. Out: `Graph`, an item pattern with its definition, its
text, its stored form and its traces. Nothing else in `algebra` refers to this package.
"""
