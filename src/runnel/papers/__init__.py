"""Algorithms of the papers that Runnel builds on but does not use by default, and alternatives to compare with.

They implement the same contracts and give the same answers. Benchmarks and tests compare them. Settings select their
matchers and orders by name, through entry points. Nothing outside this package imports it.

| paper | where |
|---|---|
| RoSeS: Creus and others, continuous RSS aggregation queries | `papers.roses` |
| Liu and others, overlapping subscriptions with expensive operators (DEBS 2007) | `papers.operators` |
| filtering RSS and RDF on a cluster | `papers.graphs`; containment, merging and the two stages are in `scaleout` |

The docstring of each package has a table of the paper's sections.
"""
