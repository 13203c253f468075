"""Decide the disjuncts that need operators. In: the matches of filters. Out: matches with bindings."""
