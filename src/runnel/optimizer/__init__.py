"""The optimizer, which compiles queries and view definitions into a logical plan with shared predicates.

In: the IDs of the feeds to match and the nodes of the virtual feeds. Out: a logical plan. `optimize` runs the passes
in `passes`, one file and one function each. `merge_plans` merges a delta into its base.
"""
