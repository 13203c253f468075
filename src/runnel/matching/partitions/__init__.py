"""Partitions: a base and a number of workers in, the base cut into pieces and a router in front of them out.

The queries of a base are divided so that related ones stay together (RSS/RDF on a cluster, §3 and §4.5): of those
that one query subsumes, only that *root* is asked about every item, by the router, and the item goes on to the
partitions whose roots it matches. `kin` finds the roots, by the subsumption of filters (`implied`) and by the
containment of graph patterns (`graph_kin`); `mergers` makes them fewer, `router_plan` makes the plan of the router of
them. What is weighed, assigned, written and loaded again lies beside them, and so does the matcher of both stages.
"""
