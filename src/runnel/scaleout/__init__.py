"""Scale-out: a base and a number of workers in, partitions of the base and a router in front of them out.

The queries of a base are partitioned so that related ones stay together (RSS/RDF on a cluster, §3 and §4.5): of those
that one query subsumes, only that *root* is evaluated for every item, by the router, and the item goes on to the
partitions whose roots it matches. `cover` finds the roots and the router's conditions, `divide` assigns queries to
partitions, `route` loads and matches them, `containment` compares graph patterns, `partitioning` is the file format.
`planning` is the port of the engine, and `stages` that of streaming. The ports load them by name; nothing imports
them.
"""
