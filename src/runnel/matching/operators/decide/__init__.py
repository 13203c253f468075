"""Deciding disjuncts that need operators: what filters let through in, matches with bindings out."""
