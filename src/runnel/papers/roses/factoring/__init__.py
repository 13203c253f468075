"""Factorisation of filters (RoSeS §4.3-5): the predicates of one source in, a filter tree out.

In: predicates as sets of clauses, which clause subsumes which, and what part of the items satisfies each. Out: a
`FilterTree`: each node is asked only of the items that passed its parent, so that what many predicates share is
asked once. `factor_filters.py` is the way in; `border.py` (VCA with VCB) and `refine_plan.py` make the trees of large
inputs, `subsumption_graph.py`, `vca.py` and `sta.py` are the paper's algorithms over an explicit subsumption graph,
for small ones.
"""
