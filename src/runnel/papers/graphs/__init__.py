"""Graph matchers to compare with Runnel's own: patterns and publications in, pairs out.

`contract` defines their interface, and `registry` names them. All return the same pairs and differ in the data that
they read. Only tests and `benchmarks/graphs.py` use them. Runnel's own matcher is `matching.graphs`.

| section | subject | module |
|---|---|---|
| 4.1 | union graph and constraint tables | `union_graph` |
| 4.2 | containment trees | `scaleout.containment.containment_trees` |
| 4.3 | merging by access frequency | `scaleout.containment.merge_roots`, `publication_summaries` |
| 4.4 | maintenance of both | `scaleout.containment.containment_index` |
| 4.5 | `match`, made sound | `counting_matcher`, `join_edges` |
| 3, 4.5 | partitions and the two stages | `scaleout.divide`, `scaleout.route`, `scaleout.stages` |
| 5, figures 9 and 10 | experiments | `benchmarks/graphs.py`, `benchmarks/graphs_index.py`, `benchmarks/cluster.py` |
| 6 | counting edges, constraints last (G-ToPSS) | `counting_matcher` (`joined`) |
| - | grouped by shape (Runnel's own) | `shape_matcher`, over `matching.graphs` |
| - | one pattern after another | `scan_graphs`, `join_each_pattern` |
"""
