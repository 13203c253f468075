"""Factoring of filters (RoSeS §4.3-5): the predicates of one source in, a filter tree out.

In: predicates as sets of clauses, the clauses that subsume others, and the share of the items that satisfies each.
Out: a `FilterTree`. Each node is evaluated only on the items that passed its parent, so a condition that many
predicates share is evaluated once. The entry point is `factor_filters.py`. `border.py` (VCA with VCB) and
`refine_plan.py` build the trees of large inputs. `subsumption_graph.py`, `vca.py` and `sta.py` are the paper's
algorithms over an explicit subsumption graph, for small inputs.
"""
