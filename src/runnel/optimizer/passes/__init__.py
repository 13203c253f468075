"""The passes of the optimiser, one file and one function each, and what they share.

In: a draft. Out: the draft after the pass; `check_draft` checks its invariants.
"""
