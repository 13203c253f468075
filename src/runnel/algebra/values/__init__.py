"""Values that conditions compare: words, stems, word patterns, links, networks, similarity of texts.

In: texts of items and constants of conditions. Out: their canonical form, and whether one fits the other.
"""
