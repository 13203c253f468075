"""Comparisons of texts: words, stems, word patterns, links, networks, regular expressions and similarity.

In: texts of items and constants of conditions. Out: their canonical forms, and whether a text matches a constant.
"""
