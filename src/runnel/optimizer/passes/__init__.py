"""The passes of the optimizer, one file and one function each, and their common functions.

In: a draft. Out: the draft after the pass; `check_draft` checks its invariants.
"""
