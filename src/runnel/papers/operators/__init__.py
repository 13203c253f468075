"""Orders of operator calls in addition to the two that the main path tries: static greedy and adaptive.

In: a problem. Out: an `Order`. The setting `operator_order` selects an order by name, except Kruskal's, which is only
for comparison.

| section | subject | module |
|---|---|---|
| 3 | the problem: disjuncts, tests and calls | `matching.operators.orders.problem` |
| 4.1, algorithm 1 | Sequential | `sequential`, `advance_disjuncts` |
| 4.2, 4.2.1 | linked chains, kept while disjuncts come and go | `chains`, `chain_links` |
| 4.2.2 | Sub-Order | `sub_order`, `advance_disjuncts` |
| 4.2.4 | difference in cost of two chains | `kruskal` (exact), `chain_links` (summed over all chains) |
| 4.2.5 | order of chains by Kruskal's method | `kruskal` |
| 4.3 | different costs | `OrderProblem.gains` |
| 5.2 | naive | `naive`, `advance_disjuncts` |
| 5, figures 4 to 8 | experiments | `benchmarks/operators.py` |
| - | adaptive with weights, not in the paper | `adaptive_weighted` |
| - | 64 events at once, for benchmarks | `sweep` |
"""
