"""The catalog: all that was declared, and the manifests of the logs, in one SQL database.

In: declarations, segments, plans, leases, messages. Out: the same, consistently: one transaction is one step of the
system. A file of the root exists when its row is here. SQLite by default; nothing is written that PostgreSQL lacks.
"""
