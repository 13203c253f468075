"""The optimiser: queries and view definitions in, a logical plan with shared predicates out.

In: the ids of the feeds to match and the nodes of the virtual feeds. Out: `optimize` gives the logical plan (one
file and one function per pass in `passes`), `merge_plans` folds a delta into its base.
"""
