"""RoSeS: filter trees (factoring, STA, VCA), the tree matcher, and their explanation.

In: predicates of one source. Out: a filter tree, and a matcher that walks it (`matcher = "tree"`).

| section | subject | module |
|---|---|---|
| 3, 4.1 | the language, compiling only what somebody subscribes to | `language`, `engine.planning` |
| 4.2, table 1 | cost model | `cost_model` |
| 4.3 | normalization | `optimizer.passes` |
| 4.3 | which predicate subsumes which | `optimizer.subsumption` |
| 4.3, figure 5 | predicate subsumption graph | `subsumption_graph`; without building it: `factoring.candidates` |
| 4.3 | disjunctions that no query has | `factoring.widen_clauses` |
| 5, algorithm 1 | VCA with the graph | `vca` |
| 5 | VCA with the Very Clever Border (VCB) | `factoring.border` |
| - | refinement of a tree, not in the paper | `factoring.refine_plan` |
| 6, figures 7 and 8 | experiments | `benchmarks/factoring.py` |
| 8 | re-optimization while running | `matching.compile.gain`, `engine.planning.reoptimize` |
| appendix A, algorithm 2 | STA | `sta` |
| - | filter trees as a matcher, and `explain` for it | `tree_matcher`, `explain_tree` |
"""
