"""Scale-out: split the queries of a base into partitions, with a router that sends each item to the right partitions.

Related queries stay in the same partition (RSS/RDF on a cluster, §3 and §4.5). The router evaluates only the *roots*,
the queries that subsume others, for every item. It sends an item to the partitions whose roots the item matches.
`cover` finds the roots and derives the router's conditions, `divide` assigns queries to partitions, `route` loads
partitions and matches with them, `containment` compares graph patterns, and `partitioning` defines the file format.
`planning` implements the port of the engine and `stages` that of streaming. The ports load both by name, so no module
outside imports them.
"""
