"""Algorithms and contenders of the papers that Runnel builds on and that its main path does not need.

They obey the same contracts and give the same answers. Benchmarks and tests compare them; settings select matchers
and orders among them, which are found as entry points. Nothing outside this package imports it.

| paper | where |
|---|---|
| RoSeS: Creus and others, continuous RSS aggregation queries | `papers.roses` |
| Liu and others, overlapping subscriptions with expensive operators (DEBS 2007) | `papers.operators` |
| filtering RSS and RDF on a cluster | `papers.graphs`; containment, merging and the two stages are in `scaleout` |

The docstring of each package has a table of the paper's sections.
"""
